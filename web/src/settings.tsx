// Sampling controls. A control that was not touched leaves the choice to the server.
import { useEffect, useRef } from 'preact/hooks';
import { chats, current, draftSystem, kDefaults, type Settings, setSystem, settings } from './chats';
import { CloseIcon } from './icons';
import { useStore } from './store';

type Number_ = Exclude<keyof Settings, 'probabilities'>;
interface Control {
  name: Number_;
  label: string;
  help: string;
  least: number;
  most: number;
  step: number;
  slider: boolean;
}

const kControls: Control[] = [
  { name: 'temperature', label: 'Temperature', help: '0 always takes the likeliest token', least: 0, most: 2, step: 0.05, slider: true },
  { name: 'top_p', label: 'Top p', help: 'choose among tokens that make up this much', least: 0.01, most: 1, step: 0.01, slider: true },
  { name: 'min_p', label: 'Min p', help: 'leave out tokens less likely than this share of the best', least: 0, most: 1, step: 0.01, slider: true },
  { name: 'top_k', label: 'Top k', help: 'choose among so many tokens; 0 for all', least: 0, most: 1000, step: 1, slider: false },
  { name: 'repetition_penalty', label: 'Repetition penalty', help: '1 for none', least: 0.5, most: 2, step: 0.05, slider: true },
  { name: 'max_tokens', label: 'Longest answer', help: 'in tokens', least: 1, most: 131072, step: 1, slider: false },
  { name: 'seed', label: 'Seed', help: 'the same seed gives the same answer', least: 0, most: 2147483647, step: 1, slider: false },
];

function set(name: Number_, text: string, control: Control) {
  const value = text.trim() === '' ? null : Number(text);
  if (value !== null && !Number.isFinite(value)) return;
  const inside = value === null ? null : Math.min(control.most, Math.max(control.least, value));
  settings.update((all) => ({ ...all, [name]: inside }));
}

function Line({ control }: { control: Control }) {
  const value = useStore(settings)[control.name];
  const id = `set-${control.name}`;
  return (
    <div class="control">
      <label for={id}>{control.label}</label>
      <input id={id} type="number" inputMode="decimal" min={control.least} max={control.most} step={control.step}
        value={value ?? ''} placeholder="auto" aria-describedby={`${id}-help`}
        onChange={(event) => set(control.name, event.currentTarget.value, control)} />
      {control.slider && (
        <input type="range" min={control.least} max={control.most} step={control.step} aria-label={control.label}
          class={value === null ? 'unset' : ''} value={value ?? (control.name === 'min_p' ? 0 : 1)}
          onInput={(event) => set(control.name, event.currentTarget.value, control)} />
      )}
      <small id={`${id}-help`}>{control.help}</small>
    </div>
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
      {kControls.map((control) => <Line key={control.name} control={control} />)}
      <label class="check">
        <input type="checkbox" checked={all.probabilities}
          onChange={(event) => settings.set({ ...all, probabilities: event.currentTarget.checked })} />
        <span>Record the probability of every token</span>
      </label>
      <button type="button" class="plain wide" onClick={() => settings.set(kDefaults)}>Back to the server's defaults</button>
    </aside>
  );
}
