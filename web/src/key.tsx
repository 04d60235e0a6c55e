// Asks for the API key when the server wants one.
import { useEffect, useRef, useState } from 'preact/hooks';
import { apiKey, keyWanted, setKey } from './api';
import { useStore } from './store';

export function KeyDialog() {
  const wanted = useStore(keyWanted);
  const dialog = useRef<HTMLDialogElement>(null);
  const [key, setText] = useState('');
  const [keep, setKeep] = useState(false);
  useEffect(() => {
    if (wanted && !dialog.current?.open) {
      setText(apiKey.value);
      dialog.current?.showModal();
    } else if (!wanted) {
      dialog.current?.close();
    }
  }, [wanted]);
  return (
    // Escape only: that it closed is told a moment later, when a refused key may want it open again.
    <dialog ref={dialog} onCancel={() => keyWanted.set(false)} aria-labelledby="key-title">
      <form method="dialog" onSubmit={(event) => {
        event.preventDefault();
        setKey(key.trim(), keep);
      }}>
        <h2 id="key-title">API key</h2>
        <p class="faint">Only needed if the server was started with keys. It is sent to this server and nowhere else.</p>
        <label class="field">
          <span>Key</span>
          <input type="password" autocomplete="off" spellcheck={false} value={key}
            onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
          <span>Remember it in this browser</span>
        </label>
        <div class="row end">
          <button type="button" class="plain" onClick={() => keyWanted.set(false)}>Cancel</button>
          <button type="submit" class="strong">Use this key</button>
        </div>
      </form>
    </dialog>
  );
}
