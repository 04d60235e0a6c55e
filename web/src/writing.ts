// Answers being written: one request to the server each, shown once a frame while it streams in.
import { ApiError, chat, type Delta, type TokenInfo, type Usage } from './api';
import { model } from './connection';
import { fieldsOf, settings } from './options';
import { Store } from './store';
import { messagesOf, type Stats, type ToolCall, type Turn } from './turns';

export const announcement = new Store<string>(''); // for screen readers
export const writers = new Map<string, AbortController>(); // by chat
export const writing = new Store<ReadonlySet<string>>(new Set());

export function isWriting(id: string): boolean {
  return writers.has(id);
}

export function stop(id: string): void {
  writers.get(id)?.abort();
}

export interface Task {
  chat: string;
  system: string;
  turns: Turn[]; // what was said so far
  show: (how: (turn: Turn) => Turn, keep: boolean) => void;
}

export function begin(task: Task): void {
  const control = new AbortController();
  writers.set(task.chat, control);
  writing.set(new Set(writers.keys()));
  announcement.set('Answering.');
  void write(task, control);
}

// Collects what arrives.
class Answer {
  content = '';
  reasoning = '';
  calls: ToolCall[] = [];
  tokens: TokenInfo[] = [];
  finish = '';
  usage?: Usage;
  private began = performance.now();
  private first = 0;
  private last = 0;
  private spoke = 0; // when something came that was no reasoning
  private pieces = 0;

  note(delta: Delta): void {
    this.content += delta.content;
    this.reasoning += delta.reasoning;
    this.tokens.push(...delta.tokens);
    for (const piece of delta.calls) {
      const call = (this.calls[piece.index] ??= { id: '', name: '', arguments: '' });
      call.id ||= piece.id;
      call.name += piece.name;
      call.arguments += piece.arguments;
    }
    if (delta.finish) this.finish = delta.finish;
    if (delta.usage) this.usage = delta.usage;
    if (!delta.content && !delta.reasoning && delta.tokens.length === 0 && delta.calls.length === 0) return;
    this.last = performance.now();
    if (this.first === 0) this.first = this.last;
    if (this.spoke === 0 && (delta.content.trim() || delta.calls.length > 0)) this.spoke = this.last;
    this.pieces += Math.max(1, delta.tokens.length);
  }
  shown(): Partial<Turn> {
    return {
      content: this.content,
      tokens: this.tokens.slice(),
      stats: this.stats(),
      ...(this.reasoning ? { reasoning: this.reasoning, thought: (this.spoke || this.last) - this.first } : {}),
      ...(this.calls.length > 0 ? { calls: this.calls.filter(Boolean).map((call) => ({ ...call })) } : {}),
    };
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

function sentenceOf(problem: unknown): string {
  const said = problem instanceof Error ? problem.message : String(problem);
  const wait = problem instanceof ApiError && !/try again/i.test(said) ? problem.retryAfter : 0;
  return wait > 0 ? `${said} Try again in ${wait} s.` : said;
}

async function write(task: Task, control: AbortController): Promise<void> {
  const answer = new Answer();
  let frame = 0;
  let saved = performance.now();
  const show = (extra: Partial<Turn> = {}, keep = false) => {
    const seen = answer.shown();
    task.show((turn) => ({ ...turn, ...seen, ...extra }), keep);
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
    const messages = messagesOf(task.system, task.turns);
    const body = { model: model.value || undefined, messages, ...fieldsOf(settings.value) };
    for await (const delta of chat(body, control.signal)) {
      answer.note(delta);
      soon();
    }
    announcement.set(`Answer finished, ${answer.stats()?.tokens ?? 0} tokens.`);
  } catch (problem) {
    end = control.signal.aborted ? { state: 'stopped' } : { state: 'failed', error: sentenceOf(problem) };
    announcement.set(end.error ? `The answer failed: ${end.error}` : 'Answer stopped.');
  }
  cancelAnimationFrame(frame);
  if (writers.get(task.chat) === control) {
    writers.delete(task.chat);
    writing.set(new Set(writers.keys()));
  }
  show(end, true);
}
