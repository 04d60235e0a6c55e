// One conversation: what was said, and the line to go on.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { chats, current, draftSystem, edit, send, stop, writing } from './chats';
import { DownIcon, SendIcon, StopIcon } from './icons';
import { Message } from './message';
import { useStore } from './store';

const kNear = 80; // pixels from the end that count as being there

function fit(area: HTMLTextAreaElement) {
  area.style.height = 'auto';
  area.style.height = `${Math.min(area.scrollHeight, window.innerHeight * 0.4)}px`;
}

function Composer({ id, last }: { id: string; last?: { turn: string; content: string } }) {
  const [text, setText] = useState('');
  const busy = useStore(writing).has(id);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    if (area.current) fit(area.current);
  }, [text]);
  useEffect(() => {
    if (matchMedia('(hover: hover)').matches) area.current?.focus();
  }, [id]);
  const go = () => {
    if (busy || !text.trim()) return;
    send(text);
    setText('');
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      go();
    } else if (event.key === 'ArrowUp' && text === '' && last && !busy) {
      event.preventDefault();
      document.querySelector<HTMLButtonElement>(`[data-edit="${last.turn}"]`)?.click();
    }
  };
  return (
    <form class="composer" onSubmit={(event) => {
      event.preventDefault();
      go();
    }}>
      <label class="hidden" for="question">Your question</label>
      <textarea id="question" ref={area} rows={1} placeholder="Ask something" value={text} enterkeyhint="send"
        onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} />
      {busy ? (
        <button type="button" class="round" onClick={() => stop(id)} aria-label="Stop" title="Stop (Esc)">
          <StopIcon />
        </button>
      ) : (
        <button type="submit" class="round" disabled={!text.trim()} aria-label="Send" title="Send (Enter)">
          <SendIcon />
        </button>
      )}
    </form>
  );
}

function Welcome() {
  const system = useStore(draftSystem);
  return (
    <div class="welcome">
      <h2>What should we talk about?</h2>
      <p>
        The model runs on the machine that serves this page, and conversations stay in this browser.
        {system && ' A system prompt is set.'}
      </p>
      <ul>
        {['Tell me a story about a mill by the river.', 'Once upon a time there was', 'Explain a cache in two sentences.'].map(
          (text) => (
            <li key={text}>
              <button type="button" onClick={() => send(text)}>{text}</button>
            </li>
          ),
        )}
      </ul>
    </div>
  );
}

// Stays at the end while an answer grows, unless the person has scrolled away from it.
function useStickyEnd(mark: unknown, id: string) {
  const scroller = useRef<HTMLDivElement>(null);
  const [away, setAway] = useState(false);
  const sticks = useRef(true);
  useLayoutEffect(() => {
    sticks.current = true;
    setAway(false);
  }, [id]);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && sticks.current) box.scrollTop = box.scrollHeight;
  }, [mark]);
  // Opening the settings or turning a phone makes lines break elsewhere.
  useEffect(() => {
    const box = scroller.current;
    const inside = box?.firstElementChild;
    if (!box || !inside) return;
    const observer = new ResizeObserver(() => {
      if (sticks.current) box.scrollTop = box.scrollHeight;
    });
    observer.observe(inside);
    observer.observe(box);
    return () => observer.disconnect();
  }, [id]);
  const scrolled = () => {
    const box = scroller.current;
    if (!box) return;
    sticks.current = box.scrollHeight - box.scrollTop - box.clientHeight < kNear;
    setAway(!sticks.current);
  };
  const toEnd = () => {
    sticks.current = true;
    setAway(false);
    scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  };
  return { scroller, scrolled, away, toEnd };
}

export function Conversation() {
  const id = useStore(current);
  const chat = useStore(chats).find((c) => c.id === id);
  const { scroller, scrolled, away, toEnd } = useStickyEnd(chat, id);
  const [editing, setEditing] = useState('');
  const turns = chat?.turns ?? [];
  const asked = turns.findLast((turn) => turn.role === 'user');
  return (
    <div class="talk">
      <div class="scroller" ref={scroller} onScroll={scrolled} tabIndex={0} role="region" aria-label="Conversation">
        {chat ? (
          <div class="turns">
            {turns.map((turn, i) => (
              <Message key={turn.id} chat={chat.id} turn={turn} last={i === turns.length - 1}
                editing={editing === turn.id} onEdit={setEditing}
                onEdited={(text: string) => {
                  setEditing('');
                  edit(chat.id, turn.id, text);
                }} />
            ))}
          </div>
        ) : (
          <Welcome />
        )}
      </div>
      <div class="foot">
        {away && (
          <button type="button" class="jump" onClick={toEnd}>
            <DownIcon /> Latest
          </button>
        )}
        <Composer id={id} last={asked && { turn: asked.id, content: asked.content }} />
        <p class="hint">
          <kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> breaks the line, <kbd>Esc</kbd> stops
        </p>
      </div>
    </div>
  );
}
