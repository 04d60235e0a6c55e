// What can be done with one conversation: another name, a file of it, the end of it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Chat, remove, rename } from './chats';
import { OutIcon, TrashIcon } from './icons';
import { exportJson, exportMarkdown } from './transfer';

export function ChatDialog({ chat, onClose }: { chat: Chat; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [title, setTitle] = useState(chat.title);
  const [sure, setSure] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
    dialog.current?.querySelector('input')?.select();
  }, []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="chat-title">
      <form method="dialog" onSubmit={(event) => {
        event.preventDefault();
        rename(chat.id, title);
        dialog.current?.close();
      }}>
        <h2 id="chat-title">Conversation</h2>
        <label class="field">
          <span>Name</span>
          <input type="text" value={title} maxLength={200} onInput={(event) => setTitle(event.currentTarget.value)} />
        </label>
        <div class="row wrap">
          <button type="button" class="plain" onClick={() => exportMarkdown(chat)}><OutIcon /> Export as Markdown</button>
          <button type="button" class="plain" onClick={() => exportJson(chat)}><OutIcon /> Export as JSON</button>
        </div>
        <div class="row wrap">
          {sure ? (
            <button type="button" class="danger" onClick={() => {
              dialog.current?.close();
              remove(chat.id);
            }}><TrashIcon /> Delete for good</button>
          ) : (
            <button type="button" class="plain" onClick={() => setSure(true)}><TrashIcon /> Delete</button>
          )}
          <span class="row">
            <button type="button" class="plain" onClick={() => dialog.current?.close()}>Cancel</button>
            <button type="submit" class="strong" disabled={!title.trim()}>Rename</button>
          </span>
        </div>
        {sure && <p class="faint" role="alert">It is kept in this browser only: once deleted, it is gone.</p>}
      </form>
    </dialog>
  );
}
