// The list of conversations, searched by name and by what was said. On a phone it slides over the page.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ChatDialog } from './chat_dialog';
import { type Chat, chats, current, notice, open } from './chats';
import { CloseIcon, InIcon, Mark, MoreIcon, OutIcon, PlusIcon } from './icons';
import { useStore } from './store';
import { exportAll, importFile } from './transfer';
import { writing } from './writing';

function heading(updated: number): string {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = (midnight - updated) / 86_400_000;
  if (days <= 0) return 'Today';
  if (days <= 1) return 'Yesterday';
  return days <= 7 ? 'This week' : 'Earlier';
}

// Where the words stand in what was said, with a little around it; null: not all of them are in the conversation.
function found(chat: Chat, wanted: string): string | null {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const said = chat.turns.map((turn) => turn.content).join('\n');
  const lower = said.toLowerCase();
  const title = chat.title.toLowerCase();
  if (!words.every((word) => lower.includes(word) || title.includes(word))) return null;
  const first = words.find((word) => lower.includes(word));
  if (!first || words.every((word) => title.includes(word))) return '';
  const at = lower.indexOf(first);
  const from = Math.max(0, at - 20);
  return `${from > 0 ? '…' : ''}${said.slice(from, at + first.length + 40).replace(/\s+/g, ' ')}`;
}

function Entry({ chat, hint, onOpen, onMore }: { chat: Chat; hint: string; onOpen: () => void; onMore: () => void }) {
  const here = useStore(current) === chat.id;
  const busy = useStore(writing).has(chat.id);
  return (
    <li class={here ? 'here' : ''}>
      <button type="button" class="entry" aria-current={here ? 'true' : undefined} title={chat.title}
        onKeyDown={(event) => event.key === 'F2' && onMore()}
        onClick={() => {
          location.hash = '';
          open(chat.id);
          onOpen();
        }}>
        {busy && <i class="busy" role="img" aria-label="answering" />}
        <span>{chat.title}{hint && <small>{hint}</small>}</span>
      </button>
      <button type="button" class="quiet drop" onClick={onMore} aria-haspopup="dialog"
        aria-label={`Rename, export or delete ${chat.title}`}>
        <MoreIcon />
      </button>
    </li>
  );
}

function Transfer() {
  const input = useRef<HTMLInputElement>(null);
  const any = useStore(chats).length > 0;
  const chosen = async (file: File | undefined) => {
    if (file) notice.set(await importFile(file));
  };
  return (
    <>
      <button type="button" class="quiet small" onClick={() => input.current?.click()} title="Conversations from a file">
        <InIcon /> Import
      </button>
      <input type="file" accept=".json,application/json" hidden ref={input} data-import="" onChange={(event) => {
        void chosen(event.currentTarget.files?.[0]);
        event.currentTarget.value = '';
      }} />
      <button type="button" class="quiet small" disabled={!any} onClick={exportAll} title="All conversations as a file">
        <OutIcon /> Export all
      </button>
    </>
  );
}

function List({ wanted, onOpen }: { wanted: string; onOpen: () => void }) {
  const all = useStore(chats);
  const [more, setMore] = useState('');
  const asked = all.find((chat) => chat.id === more);
  const groups = new Map<string, { chat: Chat; hint: string }[]>();
  for (const chat of all) {
    const hint = wanted.trim() ? found(chat, wanted) : '';
    if (hint === null) continue;
    const name = heading(chat.updated);
    groups.set(name, [...(groups.get(name) ?? []), { chat, hint }]);
  }
  return (
    <div class="list" tabIndex={0} role="region" aria-label="List of conversations">
      {all.length === 0 && <p class="faint">Conversations stay in this browser.</p>}
      {all.length > 0 && groups.size === 0 && <p class="faint" role="status">Nothing was found.</p>}
      {[...groups].map(([name, some]) => (
        <section key={name}>
          <h2>{name}</h2>
          <ul>
            {some.map(({ chat, hint }) => (
              <Entry key={chat.id} chat={chat} hint={hint} onOpen={onOpen} onMore={() => setMore(chat.id)} />
            ))}
          </ul>
        </section>
      ))}
      {asked && <ChatDialog key={asked.id} chat={asked} onClose={() => setMore('')} />}
    </div>
  );
}

export function Sidebar(props: { shown: boolean; onClose: () => void; children: ComponentChildren }) {
  const { shown, onClose } = props;
  const [wanted, setWanted] = useState('');
  const first = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!shown) return;
    first.current?.focus();
    const pressed = (event: KeyboardEvent) => event.key === 'Escape' && onClose();
    window.addEventListener('keydown', pressed);
    return () => window.removeEventListener('keydown', pressed);
  }, [shown]);
  return (
    <>
      {shown && <div class="veil" onClick={onClose} />}
      <aside class={`side${shown ? ' shown' : ''}`} aria-label="Conversations">
        <div class="brand">
          <Mark />
          <h1>Millrace</h1>
          <button type="button" class="quiet close" onClick={onClose} aria-label="Close">
            <CloseIcon />
          </button>
        </div>
        <button type="button" class="new" ref={first} title="Alt+N"
          onClick={() => {
            location.hash = '';
            open('');
            onClose();
            document.getElementById('question')?.focus();
          }}>
          <PlusIcon /> New conversation
        </button>
        <input type="search" class="search" placeholder="Search" aria-label="Search conversations" value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Escape' || !wanted) return;
            event.stopPropagation();
            setWanted('');
          }} />
        <List wanted={wanted} onOpen={onClose} />
        <div class="row tools">
          <Transfer />
          {props.children}
        </div>
      </aside>
    </>
  );
}
