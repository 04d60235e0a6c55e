// Conversations as files: JSON, which can be read back, and Markdown, for people.
import { adopt, type Chat, chats, isChat } from './chats';
import { slim, type Turn, withFiles } from './turns';

const kKind = 'millrace-conversations';
const kMostBytes = 64 * 1024 * 1024;

function fileName(title: string, ending: string): string {
  const plain = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60);
  return `${plain || 'conversation'}.${ending}`;
}

function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function jsonText(all: Chat[]): string {
  const slimmed = all.map((chat) => ({ ...chat, turns: slim(chat.turns) }));
  return `${JSON.stringify({ kind: kKind, version: 1, conversations: slimmed }, null, 1)}\n`;
}

function markdownOf(turn: Turn): string {
  if (turn.role === 'user') return `## Question\n\n${withFiles(turn)}`;
  if (turn.role === 'tool') return `## Result of a tool\n\n${turn.content}`;
  const thoughts = turn.reasoning ? `${turn.reasoning.trim().replace(/^/gm, '> ')}\n\n` : '';
  const calls = (turn.calls ?? []).map((call) => `\n\n\`\`\`json\n${call.name}(${call.arguments})\n\`\`\``).join('');
  return `## Answer\n\n${thoughts}${turn.content}${calls}`;
}

export function markdownText(chat: Chat): string {
  const system = chat.system ? [`## System prompt\n\n${chat.system}`] : [];
  return `${[`# ${chat.title}`, ...system, ...chat.turns.map(markdownOf)].join('\n\n')}\n`;
}

export function exportJson(chat: Chat): void {
  download(fileName(chat.title, 'json'), jsonText([chat]), 'application/json');
}
export function exportMarkdown(chat: Chat): void {
  download(fileName(chat.title, 'md'), markdownText(chat), 'text/markdown');
}
export function exportAll(): void {
  download('millrace-conversations.json', jsonText(chats.value), 'application/json');
}

const kRoles = ['user', 'assistant', 'tool'];
const kStates = ['done', 'writing', 'stopped', 'failed'];

function isText(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

// A turn from a file is believed in nothing: what is shown must have the types it is shown by.
function isTurn(value: unknown, depth = 0): value is Turn {
  const turn = value as Turn | null;
  if (typeof turn !== 'object' || turn === null || depth > 50) return false;
  const plain = typeof turn.id === 'string' && typeof turn.content === 'string' && kRoles.includes(turn.role);
  if (!plain || !kStates.includes(turn.state) || !isText(turn.reasoning) || !isText(turn.error)) return false;
  const files = turn.files ?? [];
  const calls = turn.calls ?? [];
  const versions = turn.versions ?? [];
  return (
    Array.isArray(files) && files.every((file) => typeof file?.name === 'string' && typeof file.text === 'string') &&
    Array.isArray(calls) &&
    calls.every((call) => [call?.id, call?.name, call?.arguments].every((text) => typeof text === 'string')) &&
    Array.isArray(versions) &&
    versions.every((v) => isTurn(v?.turn, depth + 1) && Array.isArray(v.after) && v.after.every((t) => isTurn(t, depth + 1))) &&
    (turn.shown === undefined || (Number.isInteger(turn.shown) && turn.shown >= 0 && turn.shown < versions.length)) &&
    isStats(turn.stats)
  );
}

function isStats(stats: unknown): boolean {
  if (stats === undefined) return true;
  const numbers = stats as Record<string, unknown> | null;
  return (
    typeof numbers === 'object' && numbers !== null && typeof numbers.finish === 'string' &&
    ['ttft', 'rate', 'tokens', 'prompt', 'cached'].every((name) => typeof numbers[name] === 'number')
  );
}

function isWhole(chat: unknown): chat is Chat {
  if (!isChat(chat) || typeof chat.title !== 'string' || typeof chat.updated !== 'number') return false;
  return typeof chat.system === 'string' && /^[\w-]{1,64}$/.test(chat.id) && chat.turns.every((turn) => isTurn(turn));
}

// Takes conversations from a file; a sentence about what came of it.
export async function importFile(file: File): Promise<string> {
  if (file.size > kMostBytes) return `${file.name} is too large to be an export of this page.`;
  let body: { kind?: unknown; conversations?: unknown } | null;
  try {
    body = JSON.parse(await file.text()) as typeof body;
  } catch {
    return `${file.name} is no JSON. This page reads what its own JSON export wrote.`;
  }
  if (body?.kind !== kKind || !Array.isArray(body.conversations)) {
    return `${file.name} holds no conversations of this page.`;
  }
  const whole = body.conversations.filter(isWhole);
  const kept = adopt(whole);
  const broken = body.conversations.length - whole.length;
  const left = broken > 0 ? ` ${broken} could not be read.` : '';
  return `${kept === 1 ? '1 conversation was' : `${kept} conversations were`} imported.${left}`;
}
