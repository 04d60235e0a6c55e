// Token view: the answer as the tokens it was made of, tinted by how sure the model was. The token under the pointer or
// the focus shows its probability and what else could have stood there.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { TokenInfo } from './api';
import { memo } from './memo';

function shown(token: string): string {
  return token.replaceAll('\n', '⏎').replaceAll('\t', '⇥') || '∅';
}

export function percent(logprob: number): string {
  const share = Math.exp(logprob) * 100;
  if (share >= 99.95) return '100 %';
  if (share >= 10) return `${share.toFixed(0)} %`;
  return share >= 0.1 ? `${share.toFixed(1)} %` : '< 0.1 %';
}

// Five shades: certain, likely, open, unlikely, surprising.
function shade(logprob: number): number {
  const share = Math.exp(logprob);
  return [0.9, 0.6, 0.3, 0.1].filter((limit) => share < limit).length;
}

const Flow = memo(({ tokens, active, onActive }: { tokens: TokenInfo[]; active: number; onActive: (n: number) => void }) => (
  <>
    {tokens.map((info, n) => (
      <span key={n} role="option" data-n={n} class={`token s${shade(info.logprob)}`}
        aria-selected={n === active} tabIndex={n === Math.max(0, active) ? 0 : -1}
        aria-label={`${shown(info.token)}, ${percent(info.logprob)}`} onFocus={() => onActive(n)}>
        {info.token.includes('\n') ? <><i class="break">⏎</i>{info.token}</> : info.token}
      </span>
    ))}
  </>
));

const kEdge = 8; // pixels between the card and the edge of the window, and between it and the token

// Below the token if there is room, else above it, and never over an edge of the window.
function place(card: HTMLElement, token: Element): void {
  const { innerWidth, innerHeight } = window;
  const box = token.getClientRects()[0] ?? token.getBoundingClientRect();
  const below = box.bottom + 6;
  const above = box.top - 6 - card.offsetHeight;
  const top = below + card.offsetHeight <= innerHeight - kEdge || above < kEdge ? below : above;
  const left = Math.max(kEdge, Math.min(box.left, innerWidth - card.offsetWidth - kEdge));
  card.style.left = `${left}px`;
  card.style.top = `${Math.max(kEdge, Math.min(top, innerHeight - card.offsetHeight - kEdge))}px`;
}

function Card({ info, token }: { info: TokenInfo; token: Element }) {
  const others = info.top.some((t) => t.token === info.token) ? info.top : [info, ...info.top];
  const card = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const again = () => card.current && place(card.current, token);
    again();
    window.addEventListener('scroll', again, true);
    window.addEventListener('resize', again);
    return () => {
      window.removeEventListener('scroll', again, true);
      window.removeEventListener('resize', again);
    };
  }, [token, info]);
  return (
    <div class="card" ref={card} role="status">
      <p><code>{shown(info.token)}</code> <b>{percent(info.logprob)}</b></p>
      <ol>
        {others.map((other) => (
          <li key={other.token} class={other.token === info.token ? 'taken' : ''}>
            <code>{shown(other.token)}</code>
            <meter min={0} max={1} value={Math.exp(other.logprob)} aria-hidden="true" />
            <span>{percent(other.logprob)}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

export function TokenView({ tokens }: { tokens: TokenInfo[] }) {
  const [active, setActive] = useState(-1);
  const [under, setUnder] = useState<Element | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const show = useRef((n: number) => {
    const token = box.current?.querySelector(`[data-n="${n}"]`);
    if (!token) return;
    setUnder(token);
    setActive(n);
  });
  const pressed = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const to = event.key === 'Home' ? 0 : event.key === 'End' ? tokens.length - 1 : step ? active + step : -1;
    if (to < 0 || to >= tokens.length) return;
    event.preventDefault();
    box.current?.querySelector<HTMLElement>(`[data-n="${to}"]`)?.focus();
  };
  const over = (event: Event) => {
    const n = (event.target as HTMLElement).closest<HTMLElement>('[data-n]')?.dataset.n;
    if (n !== undefined) show.current(Number(n));
  };
  const info = tokens[active];
  const surprise = tokens.reduce((sum, token) => sum - token.logprob, 0) / Math.max(1, tokens.length);
  return (
    <div class="tokenview" ref={box} onMouseLeave={() => setActive(-1)}
      onFocusOut={(event) => box.current?.contains(event.relatedTarget as Node) || setActive(-1)}>
      <p class="legend" aria-hidden="true">
        <span class="token s0">certain</span><span class="token s1">likely</span><span class="token s2">open</span>
        <span class="token s3">unlikely</span><span class="token s4">surprising</span>
        <span class="faint">perplexity {Math.exp(surprise).toFixed(2)}</span>
      </p>
      <div class="flow" role="listbox" aria-orientation="horizontal" aria-label="Tokens of the answer"
        onMouseOver={over} onClick={over} onKeyDown={pressed}>
        <Flow tokens={tokens} active={active} onActive={show.current} />
      </div>
      {info && under && <Card info={info} token={under} />}
    </div>
  );
}
