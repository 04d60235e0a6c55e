// The server, as this page sees it: OpenAI's API and /live. Everything goes to the origin the page came from.
import { Store } from './store';

export interface Alternative {
  token: string;
  logprob: number;
}
export interface TokenInfo extends Alternative {
  top: Alternative[];
}
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
}
export interface ModelInfo {
  id: string;
  max_model_len?: number;
}
export interface Delta {
  content: string;
  reasoning: string;
  tokens: TokenInfo[];
  finish?: string;
  usage?: Usage;
}

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

// The key is kept for this tab unless the person asks to remember it.
const kKey = 'millrace.key';
function storedKey(): string {
  try {
    return sessionStorage.getItem(kKey) ?? localStorage.getItem(kKey) ?? '';
  } catch {
    return '';
  }
}
export const apiKey = new Store<string>(storedKey());
export const keyWanted = new Store<boolean>(false);

export function setKey(key: string, keep: boolean): void {
  try {
    sessionStorage.removeItem(kKey);
    localStorage.removeItem(kKey);
    if (key) (keep ? localStorage : sessionStorage).setItem(kKey, key);
  } catch {
    // Without storage the key lives as long as the page.
  }
  apiKey.set(key);
  keyWanted.set(false);
}

async function failure(response: Response): Promise<ApiError> {
  let message = `The server answered ${response.status}.`;
  try {
    const body = (await response.json()) as { error?: { message?: string } | string };
    if (typeof body.error === 'string') message = body.error;
    else if (body.error?.message) message = body.error.message;
  } catch {
    // No JSON: the status has to do.
  }
  if (response.status === 401) keyWanted.set(true);
  return new ApiError(message, response.status, Number(response.headers.get('Retry-After') ?? 0));
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (apiKey.value) headers.set('Authorization', `Bearer ${apiKey.value}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: 'no-store', credentials: 'omit' });
  } catch (problem) {
    if (problem instanceof DOMException && problem.name === 'AbortError') throw problem;
    throw new ApiError('The server cannot be reached. Is it still running?', 0);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function models(): Promise<ModelInfo[]> {
  const body = (await (await ask('v1/models')).json()) as { data?: ModelInfo[] };
  return body.data ?? [];
}

// The data of each server-sent event; comments and other fields are passed over.
export async function* events(response: Response): AsyncGenerator<string> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop() ?? '';
      for (const raw of lines) {
        const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
        if (line === '') {
          if (data.length > 0) yield data.join('\n');
          data = [];
        } else if (line.startsWith('data:')) {
          data.push(line.slice(line[5] === ' ' ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

interface Chunk {
  error?: { message?: string };
  usage?: Usage | null;
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string | null };
    logprobs?: { content?: { token: string; logprob: number; top_logprobs?: Alternative[] }[] | null } | null;
    finish_reason?: string | null;
  }[];
}

export async function* chat(body: Record<string, unknown>, signal: AbortSignal): AsyncGenerator<Delta> {
  const response = await ask('v1/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const data of events(response)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new ApiError(chunk.error.message ?? 'The answer broke off.', 500);
    const choice = chunk.choices?.[0];
    yield {
      content: choice?.delta?.content ?? '',
      reasoning: choice?.delta?.reasoning_content ?? '',
      tokens: (choice?.logprobs?.content ?? []).map((t) => ({
        token: t.token,
        logprob: t.logprob,
        top: t.top_logprobs ?? [],
      })),
      finish: choice?.finish_reason ?? undefined,
      usage: chunk.usage ?? undefined,
    };
  }
}

export interface Percentiles {
  p50: number;
  p95: number;
  p99: number;
  count: number;
}
export interface Live {
  model: string;
  scope: 'all' | 'tenant';  // a tenant sees its own requests; steps, pages and the limit are everybody's
  now: number;
  running: number;
  waiting: number;
  steps: number;
  tokens_in: number;
  tokens_out: number;
  computed_tokens: number;
  cached_tokens: number;
  finished: number;
  refused: number;
  cancelled: number;
  failed: number;
  preemptions: number;
  drafted_tokens: number;
  accepted_drafts: number;
  step: { tokens: number; sequences: number; ms: number };
  ttft_ms: Percentiles;
  itl_ms: Percentiles;
  limit: number | null;
  limit_known: boolean;
  pages: { total: number; used: number; shared: number; cached: number; free: number; per_cell: number; map: string };
  kv_bytes: { reserved: number; used: number };
}

export async function* live(signal: AbortSignal): AsyncGenerator<Live> {
  const response = await ask('live', { signal });
  for await (const data of events(response)) yield JSON.parse(data) as Live;
}
