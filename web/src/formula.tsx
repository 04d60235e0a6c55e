// A formula. KaTeX is fetched from this server when the first one comes, and builds elements, never HTML text; until
// then, and where it understands nothing, the formula stands as it was written.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { memo } from './memo';
import { Store, useStore } from './store';

type Render = typeof import('katex').render;
const kLongest = 10_000;
const renderer = new Store<Render | null>(null);
let asked = false;

function fetchRenderer(): void {
  if (asked) return;
  asked = true;
  import('./katex').then((katex) => renderer.set(katex.render), () => {
    asked = false; // the server was away; the next formula asks again
  });
}

export const Formula = memo(({ tex, display }: { tex: string; display: boolean }) => {
  const place = useRef<HTMLSpanElement>(null);
  const render = useStore(renderer);
  useLayoutEffect(() => {
    const box = place.current;
    if (!box || tex.length > kLongest) return;
    if (!render) return fetchRenderer();
    try {
      render(tex, box, {
        displayMode: display,
        throwOnError: true,
        trust: false,
        strict: 'ignore',
        maxSize: 20,
        maxExpand: 300,
      });
      box.classList.remove('raw');
    } catch {
      box.classList.add('raw');
      box.textContent = tex;
    }
  }, [tex, display, render]);
  return <span class={`formula raw${display ? ' display' : ''}`} ref={place} tabIndex={display ? 0 : undefined}>{tex}</span>;
});
