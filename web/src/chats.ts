// Conversations: kept in the browser, one localStorage entry each, and the answers being written into them.
import { ApiError, chat, type TokenInfo, type Usage } from './api';
import { recall, remember, Store } from './store';

export interface Stats {
  ttft: number; // milliseconds
  rate: number; // tokens a second after the first
  tokens: number;
  prompt: number;
  cached: number;
  finish: string;
}
export interface Turn {
  id: string;
  role: 'user' | 'assistant';
  content: string;
  reasoning?: string;
  state: 'done' | 'writing' | 'stopped' | 'failed';
  error?: string;
  stats?: Stats;
  tokens?: TokenInfo[]; // kept until the page is left: they are large
}
export interface Chat {
  id: string;
  title: string;
  updated: number;
  system: string;
  turns: Turn[];
}
export interface Settings {
  temperature: number | null; // null: as the server has it
  top_p: number | null;
  top_k: number | null;
  min_p: number | null;
  repetition_penalty: number | null;
  max_tokens: number | null;
  seed: number | null;
  probabilities: boolean;
}

export const kDefaults: Settings = {
  temperature: null,
  top_p: null,
  top_k: null,
  min_p: null,
  repetition_penalty: null,
  max_tokens: null,
  seed: null,
  probabilities: true,
};
const kPrefix = 'millrace.chat.';
const kAlternatives = 5;

export const settings = new Store<Settings>({ ...kDefaults, ...recall<Partial<Settings>>('millrace.settings', {}) });
settings.watch(() => remember('millrace.settings', settings.value));

export const notice = new Store<string>('');
export const announcement = new Store<string>(''); // for screen readers
export const chats = new Store<Chat[]>(loadAll());
export const current = new Store<string>(recall('millrace.current', ''));
current.watch(() => remember('millrace.current', current.value));
export const model = new Store<string>('');

const writers = new Map<string, AbortController>(); // by chat
export const writing = new Store<ReadonlySet<string>>(new Set());

function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function isChat(value: unknown): value is Chat {
  const chat = value as Chat | null;
  return typeof chat === 'object' && chat !== null && typeof chat.id === 'string' && Array.isArray(chat.turns);
}

// An answer that was being written when the page went away has stopped.
function settled(chat: Chat): Chat {
  return { ...chat, turns: chat.turns.map((turn) => (turn.state === 'writing' ? { ...turn, state: 'stopped' } : turn)) };
}

function loadAll(): Chat[] {
  const found: Chat[] = [];
  try {
    for (let i = 0; i < localStorage.length; ++i) {
      const key = localStorage.key(i);
      if (!key?.startsWith(kPrefix)) continue;
      const chat = recall<unknown>(key, null);
      if (isChat(chat)) found.push(settled(chat));
    }
  } catch {
    return [];
  }
  return found.sort((a, b) => b.updated - a.updated);
}

function save(chat: Chat): void {
  const turns = chat.turns.map(({ tokens: _, ...turn }) => turn);
  if (!remember(kPrefix + chat.id, { ...chat, turns })) {
    notice.set('This browser has no room left for conversations. Delete some to keep new ones.');
  }
}

// Another tab changed something: take it over, unless an answer is being written here.
window.addEventListener('storage', (event) => {
  if (!event.key?.startsWith(kPrefix)) return;
  const id = event.key.slice(kPrefix.length);
  if (writers.has(id)) return;
  const others = chats.value.filter((chat) => chat.id !== id);
  const changed = recall<unknown>(event.key, null);
  chats.set((isChat(changed) ? [...others, settled(changed)] : others).sort((a, b) => b.updated - a.updated));
});
window.addEventListener('pagehide', () => {
  for (const id of writers.keys()) {
    const chat = find(id);
    if (chat) save(chat);
  }
});

export function find(id: string): Chat | undefined {
  return chats.value.find((chat) => chat.id === id);
}

function change(id: string, how: (chat: Chat) => Chat, keep = true): void {
  chats.update((all) => all.map((chat) => (chat.id === id ? how(chat) : chat)));
  const chat = find(id);
  if (keep && chat) save(chat);
}

function changeTurn(id: string, turn: string, how: (turn: Turn) => Turn, keep = true): void {
  change(id, (chat) => ({ ...chat, turns: chat.turns.map((t) => (t.id === turn ? how(t) : t)) }), keep);
}

export function open(id: string): void {
  current.set(id);
}

export function remove(id: string): void {
  stop(id);
  chats.update((all) => all.filter((chat) => chat.id !== id));
  remember(kPrefix + id, undefined);
  if (current.value === id) current.set('');
}

export function rename(id: string, title: string): void {
  if (title.trim()) change(id, (chat) => ({ ...chat, title: title.trim() }));
}

export const draftSystem = new Store<string>(''); // of the conversation not begun yet
export function setSystem(id: string, system: string): void {
  if (find(id)) change(id, (chat) => ({ ...chat, system }));
  else draftSystem.set(system);
}

function titleOf(text: string): string {
  const line = text.trim().split('\n')[0] ?? '';
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}

export function send(text: string): void {
  const content = text.trim();
  if (!content || writing.value.has(current.value)) return;
  let chat = find(current.value);
  if (!chat) {
    chat = { id: newId(), title: titleOf(content), updated: Date.now(), system: draftSystem.value, turns: [] };
    chats.update((all) => [chat as Chat, ...all]);
    current.set(chat.id);
    draftSystem.set('');
  }
  answer(chat.id, [...chat.turns, { id: newId(), role: 'user', content, state: 'done' }]);
}

// Asks again from the question before this answer.
export function regenerate(id: string, turn: string): void {
  const chat = find(id);
  const at = chat?.turns.findIndex((t) => t.id === turn) ?? -1;
  if (chat && at > 0) answer(id, chat.turns.slice(0, at));
}

// Puts another question in the place of this one; what came after it goes.
export function edit(id: string, turn: string, content: string): void {
  const chat = find(id);
  const at = chat?.turns.findIndex((t) => t.id === turn) ?? -1;
  if (!chat || at < 0 || !content.trim()) return;
  answer(id, [...chat.turns.slice(0, at), { id: newId(), role: 'user', content: content.trim(), state: 'done' }]);
}

export function stop(id: string): void {
  writers.get(id)?.abort();
}

function requestOf(chat: Chat): Record<string, unknown> {
  const { probabilities, ...sampling } = settings.value;
  const body: Record<string, unknown> = {
    model: model.value,
    messages: [
      ...(chat.system ? [{ role: 'system', content: chat.system }] : []),
      ...chat.turns.filter((t) => t.state !== 'writing').map(({ role, content }) => ({ role, content })),
    ],
  };
  for (const [name, value] of Object.entries(sampling)) if (value !== null) body[name] = value;
  if (probabilities) Object.assign(body, { logprobs: true, top_logprobs: kAlternatives });
  return body;
}

// Failed answers without a word in them are not part of what was said.
function said(turns: Turn[]): Turn[] {
  return turns.filter((turn) => turn.role === 'user' || turn.content !== '');
}

function answer(id: string, turns: Turn[]): void {
  stop(id);
  const turn: Turn = { id: newId(), role: 'assistant', content: '', state: 'writing', tokens: [] };
  const asked = { ...(find(id) as Chat), turns: said(turns) };
  change(id, (chat) => ({ ...chat, updated: Date.now(), turns: [...asked.turns, turn] }));
  chats.update((all) => [...all].sort((a, b) => b.updated - a.updated));
  const control = new AbortController();
  writers.set(id, control);
  writing.set(new Set(writers.keys()));
  announcement.set('Answering.');
  void write(id, turn.id, requestOf(asked), control);
}

// Collects what arrives and shows it once a frame.
class Answer {
  content = '';
  reasoning = '';
  tokens: TokenInfo[] = [];
  finish = '';
  usage?: Usage;
  private began = performance.now();
  private first = 0;
  private last = 0;
  private pieces = 0;

  note(content: string, reasoning: string, tokens: TokenInfo[]): void {
    this.content += content;
    this.reasoning += reasoning;
    this.tokens.push(...tokens);
    if (!content && !reasoning && tokens.length === 0) return;
    this.last = performance.now();
    if (this.first === 0) this.first = this.last;
    this.pieces += Math.max(1, tokens.length);
  }
  stats(): Stats | undefined {
    if (this.first === 0) return undefined;
    const tokens = this.usage?.completion_tokens ?? this.pieces;
    const seconds = (this.last - this.first) / 1000;
    return {
      ttft: this.first - this.began,
      rate: seconds > 0 && tokens > 1 ? (tokens - 1) / seconds : 0,
      tokens,
      prompt: this.usage?.prompt_tokens ?? 0,
      cached: this.usage?.prompt_tokens_details?.cached_tokens ?? 0,
      finish: this.finish,
    };
  }
}

async function write(id: string, turn: string, body: Record<string, unknown>, control: AbortController) {
  const answer = new Answer();
  let frame = 0;
  let saved = performance.now();
  const show = (extra: Partial<Turn> = {}, keep = false) => {
    const { content, reasoning, tokens } = answer;
    const stats = answer.stats();
    changeTurn(id, turn, (t) => ({ ...t, content, reasoning, tokens: tokens.slice(), stats, ...extra }), keep);
  };
  const soon = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      const due = performance.now() - saved > 1000;
      if (due) saved = performance.now();
      show({}, due);
    });
  };
  let end: Partial<Turn> = { state: 'done' };
  try {
    for await (const delta of chat(body, control.signal)) {
      answer.note(delta.content, delta.reasoning, delta.tokens);
      if (delta.finish) answer.finish = delta.finish;
      if (delta.usage) answer.usage = delta.usage;
      soon();
    }
    announcement.set(`Answer finished, ${answer.stats()?.tokens ?? 0} tokens.`);
  } catch (problem) {
    if (control.signal.aborted) {
      end = { state: 'stopped' };
      announcement.set('Answer stopped.');
    } else {
      const said = problem instanceof Error ? problem.message : String(problem);
      const wait = problem instanceof ApiError && !/try again/i.test(said) ? problem.retryAfter : 0;
      const error = wait > 0 ? `${said} Try again in ${wait} s.` : said;
      end = { state: 'failed', error };
      announcement.set(`The answer failed: ${error}`);
    }
  }
  cancelAnimationFrame(frame);
  if (writers.get(id) === control) {
    writers.delete(id);
    writing.set(new Set(writers.keys()));
  }
  show(end, true);
}
