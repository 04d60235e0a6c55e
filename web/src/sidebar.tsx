// The list of conversations. On a phone it slides over the page.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Chat, chats, current, open, remove, writing } from './chats';
import { CloseIcon, Mark, PlusIcon, TrashIcon } from './icons';
import { useStore } from './store';

function heading(updated: number): string {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = (midnight - updated) / 86_400_000;
  if (days <= 0) return 'Today';
  if (days <= 1) return 'Yesterday';
  return days <= 7 ? 'This week' : 'Earlier';
}

function Entry({ chat, onOpen }: { chat: Chat; onOpen: () => void }) {
  const here = useStore(current) === chat.id;
  const busy = useStore(writing).has(chat.id);
  const drop = () => {
    if (chat.turns.length === 0 || confirm(`Delete “${chat.title}”? It is kept in this browser only.`)) remove(chat.id);
  };
  return (
    <li class={here ? 'here' : ''}>
      <button type="button" class="entry" aria-current={here ? 'true' : undefined} title={chat.title}
        onClick={() => {
          location.hash = '';
          open(chat.id);
          onOpen();
        }}>
        {busy && <i class="busy" role="img" aria-label="answering" />}
        <span>{chat.title}</span>
      </button>
      <button type="button" class="quiet drop" onClick={drop} aria-label={`Delete ${chat.title}`}>
        <TrashIcon />
      </button>
    </li>
  );
}

export function Sidebar(props: { shown: boolean; onClose: () => void; children: ComponentChildren }) {
  const { shown, onClose } = props;
  const all = useStore(chats);
  const first = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!shown) return;
    first.current?.focus();
    const pressed = (event: KeyboardEvent) => event.key === 'Escape' && onClose();
    window.addEventListener('keydown', pressed);
    return () => window.removeEventListener('keydown', pressed);
  }, [shown]);
  const groups = new Map<string, Chat[]>();
  for (const chat of all) {
    const name = heading(chat.updated);
    groups.set(name, [...(groups.get(name) ?? []), chat]);
  }
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
        <div class="list">
          {all.length === 0 && <p class="faint">Conversations stay in this browser.</p>}
          {[...groups].map(([name, some]) => (
            <section key={name}>
              <h2>{name}</h2>
              <ul>{some.map((chat) => <Entry key={chat.id} chat={chat} onOpen={onClose} />)}</ul>
            </section>
          ))}
        </div>
        <div class="row tools">{props.children}</div>
      </aside>
    </>
  );
}
