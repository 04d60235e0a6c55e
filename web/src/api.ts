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
  calls: { index: number; id: string; name: string; arguments: string }[]; // pieces
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
export const news = new Store<{ status: number }>({ status: 200 }); // of the last answer; 0: the server is not there

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
  if (response.status === 401) news.set({ status: 401 });
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
    news.set({ status: 0 });
    throw new ApiError('The server cannot be reached. Is it still running?', 0);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function models(): Promise<ModelInfo[]> {
  const body = (await (await ask('v1/models')).json()) as { data?: ModelInfo[] };
  return body.data ?? [];
}

// Whether a model is there and work is taken; needs no key.
export async function ready(): Promise<void> {
  await ask('ready');
}

// What holds for a request that says nothing, by the name of the field.
export async function props(): Promise<Record<string, number>> {
  const body = (await (await ask('props')).json()) as {
    default_generation_settings?: { params?: Record<string, unknown> };
  };
  const params = Object.entries(body.default_generation_settings?.params ?? {});
  return Object.fromEntries(params.filter((one): one is [string, number] => typeof one[1] === 'number'));
}

// The data of each server-sent event; comments and other fields are passed over.
export async function* events(response: Response): AsyncGenerator<string> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((problem: unknown) => {
        if (problem instanceof DOMException && problem.name === 'AbortError') throw problem;
        news.set({ status: 0 });
        throw new ApiError('The connection broke off.', 0);
      });
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
    delta?: {
      content?: string | null;
      reasoning_content?: string | null;
      tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[] | null;
    };
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
      calls: (choice?.delta?.tool_calls ?? []).map((call) => ({
        index: call.index ?? 0,
        id: call.id ?? '',
        name: call.function?.name ?? '',
        arguments: call.function?.arguments ?? '',
      })),
      finish: choice?.finish_reason ?? undefined,
      usage: chunk.usage ?? undefined,
    };
  }
  throw new ApiError('The connection ended before the answer did.', 0);
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
  draft_windows: number;
  generated_tokens: number;
  bound: { answers: number; tokens: number };
  prefix: { lookups: number; hits: number; asked_tokens: number; found_tokens: number; second_tokens: number; store_tokens: number };
  store: { asked: number; found: number; stored: number; refused: number }; // stretches of tokens on disk, or shared
  step: { tokens: number; sequences: number; ms: number };
  ttft_ms: Percentiles;
  itl_ms: Percentiles;
  limit: number | null;
  limit_known: boolean;
  pages: {
    total: number;
    used: number;
    shared: number;
    cached: number;
    free: number;
    second_used: number; // moved out, in the second store
    per_cell: number;
    map: string;
  };
  kv_bytes: { reserved: number; used: number };
}

export async function* live(signal: AbortSignal): AsyncGenerator<Live> {
  const response = await ask('live', { signal });
  for await (const data of events(response)) yield JSON.parse(data) as Live;
}
