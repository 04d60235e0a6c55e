// One turn: a question that can be edited, or an answer with its figures and what can be done with it.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Calls, Result } from './calls';
import { regenerate, showVersion } from './chats';
import { useCopy } from './copy';
import { FileChip } from './files';
import { AgainIcon, CopyIcon, EditIcon, LeftIcon, RightIcon, TokensIcon } from './icons';
import { JsonView, jsonOf } from './jsonview';
import { Markdown } from './markdown';
import { memo } from './memo';
import { TokenView } from './tokens';
import type { Stats, Turn } from './turns';

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

// Arrows from version to version. The turn shown is another one then, so the focus is carried over.
function Versions({ chat, turn }: { chat: string; turn: Turn }) {
  const count = turn.versions?.length ?? 0;
  const shown = turn.shown ?? 0;
  if (count < 2) return null;
  const go = (step: number) => {
    const id = turn.versions?.[shown + step]?.turn.id;
    showVersion(chat, turn.id, shown + step);
    requestAnimationFrame(() => {
      const group = document.querySelector(`[data-versions="${id}"]`);
      const buttons = [...(group?.querySelectorAll<HTMLButtonElement>('button') ?? [])];
      (step < 0 ? buttons : buttons.reverse()).find((button) => !button.disabled)?.focus();
    });
  };
  return (
    <div class="versions" role="group" aria-label="Versions" data-versions={turn.id}>
      <button type="button" class="quiet small" disabled={shown === 0} onClick={() => go(-1)} aria-label="Earlier version">
        <LeftIcon />
      </button>
      <span aria-live="polite"><span class="hidden">Version </span>{shown + 1} / {count}</span>
      <button type="button" class="quiet small" disabled={shown === count - 1} onClick={() => go(1)}
        aria-label="Later version">
        <RightIcon />
      </button>
    </div>
  );
}

interface Props {
  chat: string;
  turn: Turn;
  last: boolean;
  editing: boolean;
  about: string; // of role tool: the tool's name
  onEdit: (turn: string) => void;
  onEdited: (text: string) => void;
}

function Question({ chat, turn, editing, onEdit, onEdited }: Props) {
  if (editing) return <Editor turn={turn} onDone={onEdited} onCancel={() => onEdit('')} />;
  return (
    <article class="turn question" aria-label="You">
      {turn.files && <ul class="chips">{turn.files.map((file, i) => <FileChip key={i} file={file} />)}</ul>}
      {turn.content && <p>{turn.content}</p>}
      <div class={`deeds${turn.versions ? ' kept' : ''}`}>
        <Versions chat={chat} turn={turn} />
        <button type="button" class="quiet small" data-edit={turn.id} onClick={() => onEdit(turn.id)}
          aria-label="Edit this question" title="Edit">
          <EditIcon />
        </button>
      </div>
    </article>
  );
}

type Look = 'text' | 'tokens' | 'plain';

interface DeedsProps {
  chat: string;
  turn: Turn;
  json: boolean;
  look: Look;
  onLook: (look: Look) => void;
}

function Deeds({ chat, turn, json, look, onLook }: DeedsProps) {
  const { copied, copy } = useCopy(turn.content);
  const toggle = (to: Look) => onLook(look === to ? 'text' : to);
  return (
    <div class="deeds">
      <Versions chat={chat} turn={turn} />
      {turn.content && (
        <button type="button" class="quiet small" onClick={copy}>
          <CopyIcon /> {copied ? 'Copied' : 'Copy'}
        </button>
      )}
      <button type="button" class="quiet small" onClick={() => regenerate(chat, turn.id)}>
        <AgainIcon /> Regenerate
      </button>
      {(turn.tokens?.length ?? 0) > 0 && (
        <button type="button" class="quiet small" aria-pressed={look === 'tokens'} onClick={() => toggle('tokens')}>
          <TokensIcon /> Tokens
        </button>
      )}
      {json && (
        <button type="button" class="quiet small" aria-pressed={look === 'plain'} onClick={() => toggle('plain')}>
          As text
        </button>
      )}
    </div>
  );
}

// Open while nothing else has come, then closed, unless somebody has said otherwise.
function Thinking({ turn }: { turn: Turn }) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const busy = turn.state === 'writing' && turn.content === '' && !turn.calls;
  const open = chosen ?? busy;
  const took = turn.thought ?? 0;
  return (
    <details class="thinking" open={open}>
      <summary onClick={(event) => {
        event.preventDefault();
        setChosen(!open);
      }}>{busy ? 'Thinking…' : took >= 100 ? `Thought for ${duration(took)}` : 'Thoughts'}</summary>
      {open && <Markdown text={turn.reasoning ?? ''} />}
    </details>
  );
}

function Content({ turn, json, look }: { turn: Turn; json: object | undefined; look: Look }) {
  if (look === 'tokens' && turn.tokens) return <TokenView tokens={turn.tokens} />;
  if (json && look === 'text') return <JsonView value={json} label="The answer, as JSON" />;
  if (json) return <pre class="loose" tabIndex={0}>{turn.content}</pre>;
  return <Markdown text={turn.content} />;
}

function AnswerTurn({ chat, turn, last }: Props) {
  const [look, setLook] = useState<Look>('text');
  const writing = turn.state === 'writing';
  const empty = turn.content === '' && !turn.reasoning && !turn.calls;
  const json = writing ? undefined : jsonOf(turn.content);
  return (
    <article class="turn answer" aria-label="Millrace" aria-busy={writing}>
      {turn.reasoning && <Thinking turn={turn} />}
      <Content turn={turn} json={json} look={look} />
      {turn.calls && <Calls chat={chat} turn={turn} last={last} />}
      {writing && <span class={`cursor${empty ? ' alone' : ''}`} aria-hidden="true" />}
      {turn.state === 'stopped' && <p class="state">Stopped.</p>}
      {turn.state === 'failed' && <p class="state bad" role="alert">{turn.error}</p>}
      <div class="under">
        {turn.stats && <Figures stats={turn.stats} />}
        {!writing && <Deeds chat={chat} turn={turn} json={json !== undefined} look={look} onLook={setLook} />}
      </div>
    </article>
  );
}

// The callbacks are made anew with every render of the list, so they are not compared.
const kept = memo(({ props }: { props: Props }) => {
  if (props.turn.role === 'tool') return <Result turn={props.turn} name={props.about} />;
  return props.turn.role === 'user' ? <Question {...props} /> : <AnswerTurn {...props} />;
});

export function Message(props: Props) {
  const held = useRef(props);
  const before = held.current;
  if (before.turn !== props.turn || before.editing !== props.editing || before.last !== props.last) held.current = props;
  const Kept = kept;
  return <Kept props={held.current} />;
}
