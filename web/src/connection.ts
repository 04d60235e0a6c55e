// Whether the server is there. Every answer and every failure is taken as news; in between it is asked whether it is
// ready, every few seconds while the page is seen. Lost, it is tried again after 1, 2, 4, 8 and then every 15 seconds.
import { apiKey, ApiError, keyWanted, models, news, props, ready } from './api';
import { Store } from './store';

export type Link =
  | { state: 'connecting' | 'connected' | 'loading' }
  | { state: 'lost'; again: number } // at that time, in milliseconds
  | { state: 'refused' | 'keyless' };

export const link = new Store<Link>({ state: 'connecting' });
export const model = new Store<string>('');
export const defaults = new Store<Record<string, number>>({}); // the server's own, by the name of the field

const kEvery = 5000;
const kWaits = [1000, 2000, 4000, 8000, 15_000];
let failures = 0;
let timer = 0;
let asking = false;

function plan(wait: number): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => void look(), wait);
}

function lost(): void {
  const wait = kWaits[Math.min(failures, kWaits.length - 1)] as number;
  ++failures;
  link.set({ state: 'lost', again: Date.now() + wait });
  plan(wait);
}

function failed(problem: unknown): void {
  const status = problem instanceof ApiError ? problem.status : 0;
  if (status === 401 || status === 403) {
    link.set({ state: apiKey.value ? 'refused' : 'keyless' });
    keyWanted.set(true);
  } else if (status === 503) {
    failures = 0;
    link.set({ state: 'loading' });
    plan(1000);
  } else {
    lost();
  }
}

async function greet(): Promise<void> {
  const [first] = await models();
  const settings = await props().catch((problem: unknown) => {
    if (problem instanceof ApiError && problem.status === 404) return {};
    throw problem;
  });
  model.set(first?.id ?? '');
  defaults.set(settings);
}

// Asks now.
export async function look(): Promise<void> {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  try {
    await ready();
    if (link.value.state !== 'connected') await greet();
    failures = 0;
    if (link.value.state !== 'connected') link.set({ state: 'connected' });
    plan(kEvery);
  } catch (problem) {
    failed(problem);
  } finally {
    asking = false;
  }
}

export function keepLooking(): void {
  news.watch(() => {
    if (asking) return;
    if (news.value.status === 401) failed(new ApiError('', 401));
    else if (news.value.status === 0 && link.value.state === 'connected') lost();
  });
  apiKey.watch(() => {
    link.set({ state: 'connecting' });
    void look();
  });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) clearTimeout(timer);
    else void look();
  });
  window.addEventListener('online', () => void look());
  window.addEventListener('offline', () => void look());
  void look();
}
