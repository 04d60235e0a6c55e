// Calls of tools an answer made, drawn, and their results. The page runs no tools: who asks says what they gave.
import { useState } from 'preact/hooks';
import { giveResults } from './chats';
import { ToolIcon } from './icons';
import { JsonView, jsonOf } from './jsonview';
import type { ToolCall, Turn } from './turns';

function Arguments({ text }: { text: string }) {
  const value = jsonOf(text);
  if (value) return <JsonView value={value} label="Arguments" />;
  return text.trim() ? <pre class="loose" tabIndex={0}>{text}</pre> : null;
}

function Card({ call, children }: { call: ToolCall; children?: preact.ComponentChildren }) {
  return (
    <section class="call" aria-label={`Call of ${call.name}`}>
      <h3><ToolIcon /> <code>{call.name || '…'}</code></h3>
      <Arguments text={call.arguments} />
      {children}
    </section>
  );
}

export function Calls({ chat, turn, last }: { chat: string; turn: Turn; last: boolean }) {
  const calls = turn.calls ?? [];
  const [results, setResults] = useState<string[]>([]);
  if (calls.length === 0) return null;
  if (!last || turn.state === 'writing') return <>{calls.map((call, i) => <Card key={i} call={call} />)}</>;
  return (
    <form class="calls" onSubmit={(event) => {
      event.preventDefault();
      giveResults(chat, turn.id, calls.map((_, i) => results[i] ?? ''));
    }}>
      {calls.map((call, i) => (
        <Card key={i} call={call}>
          <label class="field">
            <span>What it gave</span>
            <textarea rows={2} value={results[i] ?? ''} placeholder='{"temperature": 21}' spellcheck={false}
              onInput={(event) => {
                const text = event.currentTarget.value;
                setResults((old) => calls.map((_, n) => (n === i ? text : (old[n] ?? ''))));
              }} />
          </label>
        </Card>
      ))}
      <div class="row end">
        <button type="submit" class="strong" disabled={calls.some((_, i) => !results[i]?.trim())}>
          {calls.length > 1 ? 'Send results' : 'Send result'}
        </button>
      </div>
    </form>
  );
}

export function Result({ turn, name }: { turn: Turn; name: string }) {
  const value = jsonOf(turn.content);
  return (
    <article class="turn result" aria-label={`Result of ${name}`}>
      <details>
        <summary><ToolIcon /> <code>{name}</code> gave {value ? 'JSON' : `${turn.content.length} characters`}</summary>
        {value ? <JsonView value={value} label="Result" /> : <pre class="loose" tabIndex={0}>{turn.content}</pre>}
      </details>
    </article>
  );
}
