// Conversations: kept in the browser, one localStorage entry each, and what can be done with them.
import { recall, remember, Store } from './store';
import { branched, type FileText, isEmpty, newId, settled, slim, switched, type Turn } from './turns';
import { begin, isWriting, stop, writers } from './writing';

export interface Chat {
  id: string;
  title: string;
  updated: number;
  system: string;
  turns: Turn[];
}

const kPrefix = 'millrace.chat.';
export const notice = new Store<string>('');
export const chats = new Store<Chat[]>(loadAll());
export const current = new Store<string>(recall('millrace.current', ''));
current.watch(() => remember('millrace.current', current.value));

export function isChat(value: unknown): value is Chat {
  const chat = value as Chat | null;
  return typeof chat === 'object' && chat !== null && typeof chat.id === 'string' && Array.isArray(chat.turns);
}

function restored(chat: Chat): Chat {
  return { ...chat, turns: settled(chat.turns) };
}

function sorted(all: Chat[]): Chat[] {
  return [...all].sort((a, b) => b.updated - a.updated);
}

function loadAll(): Chat[] {
  const found: Chat[] = [];
  try {
    for (let i = 0; i < localStorage.length; ++i) {
      const key = localStorage.key(i);
      if (!key?.startsWith(kPrefix)) continue;
      const chat = recall<unknown>(key, null);
      if (isChat(chat)) found.push(restored(chat));
    }
  } catch {
    return [];
  }
  return sorted(found);
}

function save(chat: Chat): boolean {
  const kept = remember(kPrefix + chat.id, { ...chat, turns: slim(chat.turns) });
  if (!kept) notice.set('This browser has no room left for conversations. Export and delete some to keep new ones.');
  return kept;
}

// Another tab changed something: take it over, unless an answer is being written here.
window.addEventListener('storage', (event) => {
  if (!event.key?.startsWith(kPrefix)) return;
  const id = event.key.slice(kPrefix.length);
  if (isWriting(id)) return;
  const others = chats.value.filter((chat) => chat.id !== id);
  const changed = recall<unknown>(event.key, null);
  chats.set(sorted(isChat(changed) ? [...others, restored(changed)] : others));
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

export function changeTurn(id: string, turn: string, how: (turn: Turn) => Turn, keep = true): void {
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
  if (title.trim()) change(id, (chat) => ({ ...chat, title: title.trim().slice(0, 200) }));
}

// Conversations from a file, under new names where there is one already. How many were kept.
export function adopt(found: Chat[]): number {
  const fresh = found.map((chat) => restored(find(chat.id) ? { ...chat, id: newId() } : chat));
  const kept = fresh.filter(save);
  chats.update((all) => sorted([...kept, ...all]));
  return kept.length;
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

function question(content: string, files: FileText[]): Turn {
  return { id: newId(), role: 'user', content: content.trim(), state: 'done', ...(files.length > 0 ? { files } : {}) };
}

export function send(text: string, files: FileText[] = []): void {
  if ((!text.trim() && files.length === 0) || isWriting(current.value)) return;
  let chat = find(current.value);
  if (!chat) {
    const title = titleOf(text) || titleOf(files[0]?.name ?? '');
    chat = { id: newId(), title, updated: Date.now(), system: draftSystem.value, turns: [] };
    const begun = chat;
    chats.update((all) => [begun, ...all]);
    current.set(chat.id);
    draftSystem.set('');
  }
  // A failed answer without a word in it is not part of what was said.
  const said = chat.turns.filter((turn) => !isEmpty(turn) || turn.versions);
  answer(chat.id, [...said, question(text, files), blank()]);
}

function placeOf(id: string, turn: string): { chat: Chat; at: number } | undefined {
  const chat = find(id);
  const at = chat?.turns.findIndex((t) => t.id === turn) ?? -1;
  return chat && at >= 0 ? { chat, at } : undefined;
}

// Answers once more; the answer that was there stays as a version.
export function regenerate(id: string, turn: string): void {
  const place = placeOf(id, turn);
  if (place && place.at > 0) answer(id, branched(place.chat.turns, place.at, blank()));
}

// Puts another question in the place of this one, which stays as a version with what came after it.
export function edit(id: string, turn: string, content: string): void {
  const place = placeOf(id, turn);
  if (!place || !content.trim()) return;
  const files = place.chat.turns[place.at]?.files ?? [];
  answer(id, [...branched(place.chat.turns, place.at, question(content, files)), blank()]);
}

export function showVersion(id: string, turn: string, to: number): void {
  const place = placeOf(id, turn);
  if (!place || isWriting(id)) return;
  change(id, (chat) => ({ ...chat, turns: switched(chat.turns, place.at, to) }));
}

// What the tools gave for the calls of an answer, in their order, and on from there.
export function giveResults(id: string, turn: string, results: string[]): void {
  const place = placeOf(id, turn);
  const calls = place?.chat.turns[place.at]?.calls;
  if (!place || !calls) return;
  const given = calls.map((call, i): Turn => ({
    id: newId(), role: 'tool', callId: call.id, content: results[i] ?? '', state: 'done',
  }));
  answer(id, [...place.chat.turns.slice(0, place.at + 1), ...given, blank()]);
}

function blank(): Turn {
  return { id: newId(), role: 'assistant', content: '', state: 'writing', tokens: [] };
}

// The last turn is the answer to be written.
function answer(id: string, turns: Turn[]): void {
  stop(id);
  change(id, (chat) => ({ ...chat, updated: Date.now(), turns }));
  chats.update(sorted);
  const fresh = turns[turns.length - 1] as Turn;
  begin({
    chat: id,
    system: find(id)?.system ?? '',
    turns: turns.slice(0, -1),
    show: (how, keep) => changeTurn(id, fresh.id, how, keep),
  });
}
