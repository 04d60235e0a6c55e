// One conversation: what was said, and the line to go on.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { chats, current, draftSystem, edit, notice, send } from './chats';
import { addFiles, FileChip } from './files';
import { ClipIcon, DownIcon, SendIcon, StopIcon } from './icons';
import { Message } from './message';
import { useStore } from './store';
import type { FileText, Turn } from './turns';
import { stop, writing } from './writing';

const kNear = 80; // pixels from the end that count as being there

function fit(area: HTMLTextAreaElement) {
  area.style.height = 'auto';
  area.style.height = `${Math.min(area.scrollHeight, window.innerHeight * 0.4)}px`;
}

// Files that are attached to the question: chosen, dropped anywhere on the conversation, or pasted.
function useFiles() {
  const [files, setFiles] = useState<FileText[]>([]);
  const held = useRef(files);
  held.current = files;
  const add = async (chosen: Iterable<File>) => {
    const { files: now, problems } = await addFiles(held.current, [...chosen]);
    setFiles(now);
    if (problems.length > 0) notice.set(problems.join(' '));
  };
  useEffect(() => {
    const over = (event: DragEvent) => {
      if (event.dataTransfer?.types.includes('Files')) event.preventDefault();
    };
    const dropped = (event: DragEvent) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      void add(event.dataTransfer.files);
    };
    window.addEventListener('dragover', over);
    window.addEventListener('drop', dropped);
    return () => {
      window.removeEventListener('dragover', over);
      window.removeEventListener('drop', dropped);
    };
  }, []);
  return { files, setFiles, add };
}

function AttachButton({ onFiles }: { onFiles: (files: Iterable<File>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button type="button" class="quiet" onClick={() => input.current?.click()} aria-label="Attach files"
        title="Attach files as text">
        <ClipIcon />
      </button>
      <input type="file" multiple hidden ref={input} data-attach="" onChange={(event) => {
        onFiles(event.currentTarget.files ?? []);
        event.currentTarget.value = '';
      }} />
    </>
  );
}

function Composer({ id, last }: { id: string; last?: string }) {
  const [text, setText] = useState('');
  const { files, setFiles, add } = useFiles();
  const busy = useStore(writing).has(id);
  const area = useRef<HTMLTextAreaElement>(null);
  const ready = text.trim() !== '' || files.length > 0;
  useLayoutEffect(() => {
    if (area.current) fit(area.current);
  }, [text]);
  useEffect(() => {
    if (matchMedia('(hover: hover)').matches) area.current?.focus();
  }, [id]);
  const go = () => {
    if (busy || !ready) return;
    send(text, files);
    setText('');
    setFiles([]);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      go();
    } else if (event.key === 'ArrowUp' && text === '' && last && !busy) {
      event.preventDefault();
      document.querySelector<HTMLButtonElement>(`[data-edit="${last}"]`)?.click();
    }
  };
  const pasted = (event: ClipboardEvent) => {
    if (!event.clipboardData?.files.length) return;
    event.preventDefault();
    void add(event.clipboardData.files);
  };
  return (
    <form class="composer" onSubmit={(event) => {
      event.preventDefault();
      go();
    }}>
      {files.length > 0 && (
        <ul class="chips" aria-label="Attached files">
          {files.map((file, i) => (
            <FileChip key={i} file={file} onRemove={() => {
              setFiles(files.filter((_, n) => n !== i));
              area.current?.focus();
            }} />
          ))}
        </ul>
      )}
      <div class="line">
        <AttachButton onFiles={(chosen) => void add(chosen)} />
        <label class="hidden" for="question">Your question</label>
        <textarea id="question" ref={area} rows={1} placeholder="Ask something" value={text} enterkeyhint="send"
          onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} onPaste={pasted} />
        {busy ? (
          <button type="button" class="round" onClick={() => stop(id)} aria-label="Stop" title="Stop (Esc)">
            <StopIcon />
          </button>
        ) : (
          <button type="submit" class="round" disabled={!ready} aria-label="Send" title="Send (Enter)">
            <SendIcon />
          </button>
        )}
      </div>
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

// The tool a result came from: that of the call it answers.
function toolOf(turns: Turn[], turn: Turn): string {
  if (turn.role !== 'tool') return '';
  return turns.flatMap((t) => t.calls ?? []).findLast((call) => call.id === turn.callId)?.name ?? 'a tool';
}

export function Conversation() {
  const id = useStore(current);
  const chat = useStore(chats).find((c) => c.id === id);
  const { scroller, scrolled, away, toEnd } = useStickyEnd(chat, id);
  const [editing, setEditing] = useState('');
  const turns = chat?.turns ?? [];
  const asked = turns.findLast((turn) => turn.role === 'user');
  return (
    <div class="conversation">
      <div class="scroller" ref={scroller} onScroll={scrolled} tabIndex={0} role="region" aria-label="Conversation">
        {chat ? (
          <div class="turns">
            {turns.map((turn, i) => (
              <Message key={turn.id} chat={chat.id} turn={turn} last={i === turns.length - 1}
                about={toolOf(turns, turn)} editing={editing === turn.id} onEdit={setEditing}
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
        <Composer id={id} last={asked?.id} />
        <p class="hint">
          <kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> breaks the line, <kbd>Esc</kbd> stops
        </p>
      </div>
    </div>
  );
}
