// One turn: a question that can be edited, or an answer with its figures and what can be done with it.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { regenerate, type Stats, type Turn } from './chats';
import { useCopy } from './copy';
import { AgainIcon, CopyIcon, EditIcon, TokensIcon } from './icons';
import { Markdown } from './markdown';
import { memo } from './memo';
import { TokenView } from './tokens';

export function duration(milliseconds: number): string {
  if (milliseconds < 1) return '< 1 ms';
  return milliseconds < 1000 ? `${milliseconds.toFixed(0)} ms` : `${(milliseconds / 1000).toFixed(2)} s`;
}

function Figures({ stats }: { stats: Stats }) {
  const parts: [string, string, string][] = [
    ['TTFT', duration(stats.ttft), 'Time to the first token'],
    ['tokens/s', stats.rate > 0 ? stats.rate.toFixed(1) : '–', 'Tokens a second after the first'],
    ['tokens', String(stats.tokens), 'Tokens of this answer'],
  ];
  if (stats.prompt > 0) {
    parts.push(['cached', `${stats.cached} of ${stats.prompt}`, 'Prompt tokens that were in the cache already']);
  }
  return (
    <dl class="figures">
      {parts.map(([name, value, title]) => (
        <div key={name} title={title}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {stats.finish === 'length' && <div class="cut"><dt class="hidden">note</dt><dd>cut at the longest length</dd></div>}
    </dl>
  );
}

function Editor({ turn, onDone, onCancel }: { turn: Turn; onDone: (text: string) => void; onCancel: () => void }) {
  const [text, setText] = useState(turn.content);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
  }, []);
  const pressed = (event: KeyboardEvent) => {
    if (event.key === 'Escape') onCancel();
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      onDone(text);
    }
  };
  return (
    <form class="editor" onSubmit={(event) => {
      event.preventDefault();
      onDone(text);
    }}>
      <textarea ref={area} rows={Math.min(12, text.split('\n').length + 1)} value={text} aria-label="Edit the question"
        onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} />
      <div class="row end">
        <button type="button" class="plain" onClick={onCancel}>Cancel</button>
        <button type="submit" class="strong" disabled={!text.trim()}>Ask this instead</button>
      </div>
    </form>
  );
}

interface Props {
  chat: string;
  turn: Turn;
  last: boolean;
  editing: boolean;
  onEdit: (turn: string) => void;
  onEdited: (text: string) => void;
}

function Question({ turn, editing, onEdit, onEdited }: Props) {
  if (editing) return <Editor turn={turn} onDone={onEdited} onCancel={() => onEdit('')} />;
  return (
    <article class="turn question" aria-label="You">
      <p>{turn.content}</p>
      <div class="deeds">
        <button type="button" class="quiet small" data-edit={turn.id} onClick={() => onEdit(turn.id)}
          aria-label="Edit this question" title="Edit">
          <EditIcon />
        </button>
      </div>
    </article>
  );
}

function Deeds({ chat, turn, tokens, onTokens }: { chat: string; turn: Turn; tokens: boolean; onTokens: () => void }) {
  const { copied, copy } = useCopy(turn.content);
  return (
    <div class="deeds">
      <button type="button" class="quiet small" onClick={copy}>
        <CopyIcon /> {copied ? 'Copied' : 'Copy'}
      </button>
      <button type="button" class="quiet small" onClick={() => regenerate(chat, turn.id)}>
        <AgainIcon /> Regenerate
      </button>
      {(turn.tokens?.length ?? 0) > 0 && (
        <button type="button" class="quiet small" aria-pressed={tokens} onClick={onTokens}>
          <TokensIcon /> Tokens
        </button>
      )}
    </div>
  );
}

function AnswerTurn({ chat, turn }: Props) {
  const [tokens, setTokens] = useState(false);
  const writing = turn.state === 'writing';
  const empty = turn.content === '' && !turn.reasoning;
  return (
    <article class="turn answer" aria-label="Millrace" aria-busy={writing}>
      {turn.reasoning && (
        <details class="thinking" open={turn.content === '' && writing}>
          <summary>Thinking</summary>
          <Markdown text={turn.reasoning} />
        </details>
      )}
      {tokens && turn.tokens ? <TokenView tokens={turn.tokens} /> : <Markdown text={turn.content} />}
      {writing && <span class={`cursor${empty ? ' alone' : ''}`} aria-hidden="true" />}
      {turn.state === 'stopped' && <p class="state">Stopped.</p>}
      {turn.state === 'failed' && <p class="state bad" role="alert">{turn.error}</p>}
      <div class="under">
        {turn.stats && <Figures stats={turn.stats} />}
        {!writing && <Deeds chat={chat} turn={turn} tokens={tokens} onTokens={() => setTokens(!tokens)} />}
      </div>
    </article>
  );
}

// The callbacks are made anew with every render of the list, so they are not compared.
const kept = memo(({ props }: { props: Props }) =>
  props.turn.role === 'user' ? <Question {...props} /> : <AnswerTurn {...props} />,
);

export function Message(props: Props) {
  const held = useRef(props);
  const before = held.current;
  if (before.turn !== props.turn || before.editing !== props.editing || before.last !== props.last) held.current = props;
  const Kept = kept;
  return <Kept props={held.current} />;
}
