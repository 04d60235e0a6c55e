// Code with its colours. The highlighter gives a tree, which becomes elements here; there is no HTML text in between.
import type { RootContent } from 'hast';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { useCopy } from './copy';
import { CopyIcon } from './icons';
import { memo } from './memo';
import { Store, useStore } from './store';

type Lowlight = typeof import('./languages').lowlight;
const kLongest = 60_000; // characters; colours for more would be felt
const kDeepest = 40;
const highlighter = new Store<Lowlight | null>(null);
let asked = false;

function fetchHighlighter(): void {
  if (asked) return;
  asked = true;
  import('./languages').then((languages) => highlighter.set(languages.lowlight), () => {
    asked = false;
  });
}

function textOf(node: RootContent): string {
  if (node.type === 'text') return node.value;
  return node.type === 'element' ? node.children.map(textOf).join('') : '';
}

function tinted(nodes: RootContent[], depth = 0): ComponentChildren[] {
  return nodes.map((node, i) => {
    if (node.type !== 'element' || depth > kDeepest) return textOf(node);
    const names = node.properties.className;
    return <span key={i} class={Array.isArray(names) ? names.join(' ') : ''}>{tinted(node.children, depth + 1)}</span>;
  });
}

export const Tinted = memo(({ text, language }: { text: string; language: string }) => {
  const lowlight = useStore(highlighter);
  useEffect(() => {
    if (language && !lowlight) fetchHighlighter();
  }, [language, lowlight]);
  if (!lowlight || !language || text.length > kLongest || !lowlight.registered(language)) return <>{text}</>;
  return <>{tinted(lowlight.highlight(language, text).children)}</>;
});

export const CodeFigure = memo(({ text, language }: { text: string; language: string }) => {
  const { copied, copy } = useCopy(text);
  return (
    <figure class="code">
      <figcaption>
        <span>{language || 'text'}</span>
        <button type="button" class="quiet small" onClick={copy} aria-label="Copy code">
          <CopyIcon /> {copied ? 'Copied' : 'Copy'}
        </button>
      </figcaption>
      <pre tabIndex={0}><code><Tinted text={text} language={language.toLowerCase()} /></code></pre>
    </figure>
  );
});
