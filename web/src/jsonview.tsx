// JSON as a tree that opens and closes. What is closed is not built, so that deep and long values cost what is seen.
import { useState } from 'preact/hooks';
import { memo } from './memo';

const kFirst = 50; // entries shown before "more"

function Plain({ value }: { value: unknown }) {
  const kind = value === null ? 'null' : typeof value;
  return <span class={`json-${kind}`}>{JSON.stringify(value)}</span>;
}

function Entry({ name, value, depth }: { name?: string; value: unknown; depth: number }) {
  const [open, setOpen] = useState(depth < 2);
  const [shown, setShown] = useState(kFirst);
  const label = name !== undefined && <><span class="json-key">{name}</span>: </>;
  if (typeof value !== 'object' || value === null) return <li>{label}<Plain value={value} /></li>;
  const list = Array.isArray(value);
  const entries: [string, unknown][] = list ? value.map((one, i) => [String(i), one]) : Object.entries(value);
  const about = `${list ? '[' : '{'}${entries.length}${list ? ']' : '}'}`;
  return (
    <li>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>{label}<span class="json-about">{about}</span></summary>
        {open && (
          <ul>
            {entries.slice(0, shown).map(([key, one]) => <Entry key={key} name={key} value={one} depth={depth + 1} />)}
            {entries.length > shown && (
              <li>
                <button type="button" class="quiet small" onClick={() => setShown(shown * 4)}>
                  {entries.length - shown} more
                </button>
              </li>
            )}
          </ul>
        )}
      </details>
    </li>
  );
}

export const JsonView = memo(({ value, label }: { value: unknown; label: string }) => (
  <ul class="json" aria-label={label}><Entry value={value} depth={0} /></ul>
));

// The value if a text is JSON and nothing else: an object or a list, also as the only code of an answer.
export function jsonOf(text: string): object | undefined {
  const inside = text.trim().match(/^```(?:json)?\s*\n([\s\S]*?)\n```$/i)?.[1] ?? text.trim();
  if (!/^[[{]/.test(inside)) return undefined;
  try {
    const value = JSON.parse(inside) as unknown;
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
