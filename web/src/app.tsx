// The frame: conversations at the side, chat or live view in the middle, settings on demand.
import { useEffect, useState } from 'preact/hooks';
import { keyWanted } from './api';
import { current, notice, open } from './chats';
import { keepLooking } from './connection';
import { Conversation } from './conversation';
import { CloseIcon, KeyIcon, MenuIcon, SlidersIcon, ThemeIcon } from './icons';
import { KeyDialog } from './key';
import { Light } from './light';
import { LiveView } from './live';
import { SettingsPanel } from './settings';
import { Sidebar } from './sidebar';
import { recall, remember, Store, useStore } from './store';
import { announcement, stop, writing } from './writing';

type View = 'chat' | 'live';
type Theme = 'auto' | 'light' | 'dark';

const theme = new Store<Theme>(recall<Theme>('millrace.theme', 'auto'));
const kNextTheme: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' };

function useView(): View {
  const read = (): View => (location.hash === '#live' ? 'live' : 'chat');
  const [view, setView] = useState(read);
  useEffect(() => {
    const changed = () => setView(read());
    window.addEventListener('hashchange', changed);
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  return view;
}

function useKeys(toggleSettings: () => void) {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (document.querySelector('dialog[open]')) return;
      if (event.key === 'Escape' && writing.value.has(current.value)) {
        stop(current.value);
      } else if (event.altKey && event.code === 'KeyN') {
        event.preventDefault();
        location.hash = '';
        open('');
        document.getElementById('question')?.focus();
      } else if (event.altKey && event.code === 'KeyS') {
        event.preventDefault();
        toggleSettings();
      } else if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        document.getElementById('question')?.focus();
      }
    };
    window.addEventListener('keydown', pressed);
    return () => window.removeEventListener('keydown', pressed);
  }, []);
}

function ThemeButton() {
  const chosen = useStore(theme);
  useEffect(() => {
    if (chosen === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    remember('millrace.theme', chosen);
  }, [chosen]);
  const label = { auto: 'as the system', light: 'light', dark: 'dark' }[chosen];
  return (
    <button type="button" class="quiet small" onClick={() => theme.set(kNextTheme[chosen])} title={`Colours: ${label}`}>
      <ThemeIcon /> {{ auto: 'System', light: 'Light', dark: 'Dark' }[chosen]}
      <span class="hidden"> colours</span>
    </button>
  );
}

function Notice() {
  const text = useStore(notice);
  if (!text) return null;
  return (
    <div class="notice" role="alert">
      <span>{text}</span>
      <button type="button" class="quiet" onClick={() => notice.set('')} aria-label="Dismiss">
        <CloseIcon />
      </button>
    </div>
  );
}

function Header(props: { view: View; onMenu: () => void; onSettings: () => void; settings: boolean }) {
  return (
    <header class="top">
      <button type="button" class="quiet menu" onClick={props.onMenu} aria-label="Conversations">
        <MenuIcon />
      </button>
      <nav class="views" aria-label="Views">
        <a href="#" aria-current={props.view === 'chat' ? 'page' : undefined}>Chat</a>
        <a href="#live" aria-current={props.view === 'live' ? 'page' : undefined}>Live</a>
      </nav>
      <Light />
      {props.view === 'chat' && (
        <button type="button" class="quiet" onClick={props.onSettings} aria-expanded={props.settings}
          aria-controls="settings" title="Settings (Alt+S)" aria-label="Settings">
          <SlidersIcon />
        </button>
      )}
    </header>
  );
}

export function App() {
  const view = useView();
  useEffect(keepLooking, []);
  const [menu, setMenu] = useState(false);
  const [settings, setSettings] = useState(false);
  useKeys(() => setSettings((shown) => !shown));
  const said = useStore(announcement);
  return (
    <div class="frame">
      <a class="skip" href="#question" onClick={(event) => {
        event.preventDefault();
        document.getElementById('question')?.focus();
      }}>Skip to the question</a>
      <Sidebar shown={menu} onClose={() => setMenu(false)}>
        <ThemeButton />
        <button type="button" class="quiet small" onClick={() => keyWanted.set(true)}>
          <KeyIcon /> API key
        </button>
      </Sidebar>
      <div class="middle">
        <Header view={view} settings={settings} onMenu={() => setMenu(true)}
          onSettings={() => setSettings((shown) => !shown)} />
        <Notice />
        <main id="main">{view === 'live' ? <LiveView /> : <Conversation />}</main>
      </div>
      {settings && view === 'chat' && <SettingsPanel onClose={() => setSettings(false)} />}
      <KeyDialog />
      <div class="hidden" role="status" aria-live="polite">{said}</div>
    </div>
  );
}
