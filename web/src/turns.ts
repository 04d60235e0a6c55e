// Turns of a conversation, and the versions of a turn: making an answer anew or editing a question keeps what was there,
// with everything that followed it. Values only; nothing here is kept or shown.
import type { TokenInfo } from './api';

export interface Stats {
  ttft: number; // milliseconds
  rate: number; // tokens a second after the first
  tokens: number;
  prompt: number;
  cached: number;
  finish: string;
}
export interface FileText {
  name: string;
  text: string;
}
export interface ToolCall {
  id: string;
  name: string;
  arguments: string; // JSON, as far as it has come
}
export interface Turn {
  id: string;
  role: 'user' | 'assistant' | 'tool';
  content: string;
  reasoning?: string;
  thought?: number; // milliseconds until the answer began
  calls?: ToolCall[];
  callId?: string; // of role tool: the call it answers
  files?: FileText[];
  state: 'done' | 'writing' | 'stopped' | 'failed';
  error?: string;
  stats?: Stats;
  tokens?: TokenInfo[]; // kept until the page is left: they are large
  versions?: Version[]; // all there are; the one shown is as it was when it was shown first
  shown?: number;
}
export interface Version {
  turn: Turn;
  after: Turn[];
}

export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function isEmpty(turn: Turn): boolean {
  return turn.role === 'assistant' && !turn.content && !turn.reasoning && !turn.calls?.length;
}

function bare({ versions: _, shown: __, ...turn }: Turn): Turn {
  return turn;
}

// The versions of the turn at `at`, the one shown as it is now.
function versionsAt(turns: Turn[], at: number): Version[] {
  const turn = turns[at] as Turn;
  const versions = [...(turn.versions ?? [])];
  versions[turn.shown ?? 0] = { turn: bare(turn), after: turns.slice(at + 1) };
  return versions;
}

// With `fresh` in the place of the turn at `at`, and nothing after it. An answer that never came is not kept.
export function branched(turns: Turn[], at: number, fresh: Turn): Turn[] {
  const old = turns[at] as Turn;
  const versions = versionsAt(turns, at);
  const place = isEmpty(old) ? (old.shown ?? 0) : versions.length;
  versions[place] = { turn: fresh, after: [] };
  const turn = versions.length > 1 ? { ...fresh, versions, shown: place } : fresh;
  return [...turns.slice(0, at), turn];
}

export function switched(turns: Turn[], at: number, to: number): Turn[] {
  const versions = versionsAt(turns, at);
  const next = versions[to];
  if (!next) return turns;
  return [...turns.slice(0, at), { ...next.turn, versions, shown: to }, ...next.after];
}

function each(turns: Turn[], change: (turn: Turn) => Turn): Turn[] {
  return turns.map((turn) => {
    const changed = change(turn);
    if (!turn.versions) return changed;
    const versions = turn.versions.map((v) => ({ turn: change(v.turn), after: each(v.after, change) }));
    return { ...changed, versions };
  });
}

// As they are stored: without what is large.
export function slim(turns: Turn[]): Turn[] {
  return each(turns, ({ tokens: _, ...turn }) => turn);
}

// As they are found again: an answer that was being written when the page went away has stopped.
export function settled(turns: Turn[]): Turn[] {
  return each(turns, (turn) => (turn.state === 'writing' ? { ...turn, state: 'stopped' } : turn));
}

// A fence that nothing in the text can close.
function fenced(text: string, language: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((run) => run[0].length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}`;
}

export function withFiles(turn: Turn): string {
  const parts = (turn.files ?? []).map(({ name, text }) => {
    const ending = name.match(/\.([a-z0-9+]{1,8})$/i)?.[1]?.toLowerCase() ?? '';
    return `File ${JSON.stringify(name)}:\n\n${fenced(text, ending)}`;
  });
  return [...parts, turn.content].filter((part) => part !== '').join('\n\n');
}

// What the server is told. Calls without all their results are left out: no template knows what to do with them.
export function messagesOf(system: string, turns: Turn[]): Record<string, unknown>[] {
  const messages: Record<string, unknown>[] = system ? [{ role: 'system', content: system }] : [];
  turns.forEach((turn, i) => {
    if (turn.role === 'user') messages.push({ role: 'user', content: withFiles(turn) });
    if (turn.role === 'tool') messages.push({ role: 'tool', tool_call_id: turn.callId, content: turn.content });
    if (turn.role !== 'assistant' || isEmpty(turn)) return;
    const results = turns.slice(i + 1, i + 1 + (turn.calls?.length ?? 0));
    const answered = (turn.calls ?? []).every((call) => results.some((r) => r.role === 'tool' && r.callId === call.id));
    if (!turn.calls?.length || !answered) {
      if (turn.content) messages.push({ role: 'assistant', content: turn.content });
      return;
    }
    messages.push({
      role: 'assistant',
      content: turn.content,
      ...(turn.reasoning ? { reasoning_content: turn.reasoning } : {}),
      tool_calls: turn.calls.map(({ id, name, arguments: args }) => ({
        id,
        type: 'function',
        function: { name, arguments: args || '{}' },
      })),
    });
  });
  return messages;
}
