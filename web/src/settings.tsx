// What the next answers are made with. A control that was not touched leaves the choice to the server, and stands where
// the server has it.
import { useEffect, useRef } from 'preact/hooks';
import { chats, current, draftSystem, setSystem } from './chats';
import { defaults } from './connection';
import { CloseIcon, ResetIcon } from './icons';
import { kDefaults, schemaProblem, type Settings, settings, toolsProblem } from './options';
import { useStore } from './store';

type Numeric = { [K in keyof Settings]: Settings[K] extends number | null ? K : never }[keyof Settings];
interface Control {
  name: Numeric;
  label: string;
  help: string;
  least: number;
  most: number;
  step: number;
  slider: boolean;
}

function control(name: Numeric, label: string, help: string, range: [number, number, number], slider = false): Control {
  return { name, label, help, least: range[0], most: range[1], step: range[2], slider };
}

const kControls: Control[] = [
  control('temperature', 'Temperature', '0 always takes the likeliest token', [0, 2, 0.05], true),
  control('top_p', 'Top p', 'choose among tokens that make up this much', [0.01, 1, 0.01], true),
  control('min_p', 'Min p', 'leave out tokens less likely than this share of the best', [0, 1, 0.01], true),
  control('top_k', 'Top k', 'choose among so many tokens; 0 for all', [0, 1000, 1]),
  control('repetition_penalty', 'Repetition penalty', '1 for none', [0.5, 2, 0.05], true),
  control('max_tokens', 'Longest answer', 'in tokens', [1, 131072, 1]),
  control('seed', 'Seed', 'the same seed gives the same answer', [0, 2147483647, 1]),
];

function set({ name, least, most }: Control, text: string): void {
  const value = text.trim() === '' ? null : Number(text);
  if (value !== null && !Number.isFinite(value)) return;
  const inside = value === null ? null : Math.min(most, Math.max(least, value));
  settings.update((all) => ({ ...all, [name]: inside }));
}

function shortNumber(value: number): string {
  return String(Number(value.toFixed(4)));
}

function Line({ control: one }: { control: Control }) {
  const value = useStore(settings)[one.name];
  const own = useStore(defaults)[one.name];
  const id = `set-${one.name}`;
  const usual = own === undefined ? '' : `; the server has ${shortNumber(own)}`;
  const number = useRef<HTMLInputElement>(null);
  return (
    <div class={`control${value === null ? '' : ' touched'}`}>
      <label for={id}>{one.label}</label>
      {value !== null && (
        <button type="button" class="quiet reset" title="As the server has it"
          aria-label={`${one.label}: as the server has it`} onClick={() => {
            set(one, '');
            number.current?.focus();
          }}>
          <ResetIcon />
        </button>
      )}
      <input id={id} ref={number} type="number" inputMode="decimal" min={one.least} max={one.most} step="any"
        value={value ?? ''} placeholder={own === undefined ? 'auto' : shortNumber(own)} aria-describedby={`${id}-help`}
        onChange={(event) => set(one, event.currentTarget.value)} />
      {one.slider && (
        <input type="range" min={one.least} max={one.most} step={one.step} aria-label={`${one.label}, slider`}
          aria-valuetext={`${shortNumber(value ?? own ?? one.least)}${value === null ? ', as the server has it' : ''}`}
          class={value === null ? 'unset' : ''} value={value ?? own ?? one.least}
          onInput={(event) => set(one, event.currentTarget.value)} />
      )}
      <small id={`${id}-help`}>{one.help}{usual}</small>
    </div>
  );
}

function Problem({ id, text }: { id: string; text: string }) {
  return text ? <small class="wrong" id={id} role="alert">{text}</small> : null;
}

function Form() {
  const all = useStore(settings);
  const problem = all.format === 'schema' ? schemaProblem(all.schema) : '';
  const tools = toolsProblem(all.tools);
  return (
    <>
      <label class="field">
        <span>Thinking</span>
        <select value={all.reasoning} onChange={(event) => {
          settings.set({ ...all, reasoning: event.currentTarget.value as Settings['reasoning'] });
        }}>
          <option value="">as the model has it</option>
          <option value="none">off</option>
          <option value="low">low</option>
          <option value="medium">medium</option>
          <option value="high">high</option>
        </select>
      </label>
      <label class="field">
        <span>Form of the answer</span>
        <select value={all.format} onChange={(event) => {
          settings.set({ ...all, format: event.currentTarget.value as Settings['format'] });
        }}>
          <option value="text">text</option>
          <option value="json">any JSON object</option>
          <option value="schema">JSON by a schema</option>
        </select>
      </label>
      {all.format === 'schema' && (
        <label class="field">
          <span>JSON schema</span>
          <textarea class="mono" rows={6} spellcheck={false} value={all.schema} aria-invalid={problem !== ''}
            aria-describedby="schema-problem" placeholder='{"type": "object", "properties": {}}'
            onInput={(event) => settings.set({ ...all, schema: event.currentTarget.value })} />
          <Problem id="schema-problem" text={problem} />
        </label>
      )}
      <label class="field">
        <span>Tools the model may call</span>
        <textarea class="mono" rows={all.tools ? 6 : 2} spellcheck={false} value={all.tools}
          aria-invalid={tools !== ''} aria-describedby="tools-problem"
          placeholder='[{"type": "function", "function": {"name": …}}]'
          onInput={(event) => settings.set({ ...all, tools: event.currentTarget.value })} />
        <Problem id="tools-problem" text={tools} />
      </label>
    </>
  );
}

export function SettingsPanel({ onClose }: { onClose: () => void }) {
  const all = useStore(settings);
  const id = useStore(current);
  const draft = useStore(draftSystem);
  const system = useStore(chats).find((chat) => chat.id === id)?.system ?? draft;
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    panel.current?.querySelector('textarea')?.focus();
  }, []);
  return (
    <aside class="settings" id="settings" aria-label="Settings" ref={panel}
      onKeyDown={(event) => event.key === 'Escape' && onClose()}>
      <div class="row">
        <h2>Settings</h2>
        <button type="button" class="quiet" onClick={onClose} aria-label="Close settings">
          <CloseIcon />
        </button>
      </div>
      <label class="field">
        <span>System prompt of this conversation</span>
        <textarea rows={4} value={system} onInput={(event) => setSystem(id, event.currentTarget.value)} />
      </label>
      {kControls.map((one) => <Line key={one.name} control={one} />)}
      <Form />
      <label class="check">
        <input type="checkbox" checked={all.probabilities}
          onChange={(event) => settings.set({ ...all, probabilities: event.currentTarget.checked })} />
        <span>Record the probability of every token</span>
      </label>
      <button type="button" class="plain wide" onClick={() => settings.set(kDefaults)}>Back to the server's defaults</button>
    </aside>
  );
}
