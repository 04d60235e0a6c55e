// What /live said of late: samples of the last minutes, for the charts. They outlive the view and a reload of the page
// (in the tab's own storage); the time nobody watched is a gap in the charts, not a line across it.
import { apiKey, ApiError, live, type Live } from './api';
import { Store } from './store';

export const kSamples = 480; // two minutes at four a second
const kPeriod = 0.25; // seconds
const kKey = 'millrace.live';

export interface Sample {
  out: number | null; // tokens a second
  into: number | null;
  running: number | null;
  waiting: number | null;
  tokens: number | null; // a step
  sequences: number | null;
  pass: number | null; // tokens a sequence got from a pass of the model
  kept: number | null; // share of guesses that were right
  bound: number | null; // tokens a second that were chosen under a mask
  found: number | null; // share of prompt tokens that were in the cache
}
const kGap: Sample = {
  out: null, into: null, running: null, waiting: null, tokens: null, sequences: null, pass: null, kept: null,
  bound: null, found: null,
};

export interface Seen {
  now?: Live;
  samples: Sample[];
  problem: string;
}

interface Kept {
  model: string;
  scope: string;
  engine: number; // seconds, at the last sample
  clock: number; // milliseconds, at the last sample
  samples: (number | null)[][];
}

const kNames = Object.keys(kGap) as (keyof Sample)[];

function share(part: number, whole: number): number | null {
  return whole > 0 ? part / whole : null;
}

function sampleOf(before: Live, after: Live): Sample {
  const seconds = Math.max(1e-3, after.now - before.now);
  const more = (of: (live: Live) => number) => Math.max(0, of(after) - of(before));
  const stepped = after.steps > before.steps;
  const written = more((l) => l.tokens_out);
  const generated = more((l) => l.generated_tokens);
  const kept = more((l) => l.accepted_drafts);
  return {
    out: written / seconds,
    into: Math.max(0, more((l) => l.computed_tokens) - written) / seconds,
    running: after.running,
    waiting: after.waiting,
    tokens: stepped ? after.step.tokens : null,
    sequences: stepped ? after.step.sequences : null,
    pass: share(generated, generated - kept),
    kept: share(kept, more((l) => l.drafted_tokens)),
    bound: more((l) => l.bound.tokens) / seconds,
    found: share(more((l) => l.prefix.found_tokens), more((l) => l.prefix.asked_tokens)),
  };
}

export const seen = new Store<Seen>({ samples: [], problem: '' });

function keep(): void {
  const { now, samples } = seen.value;
  if (!now || samples.length === 0) return;
  const kept: Kept = {
    model: now.model,
    scope: now.scope,
    engine: now.now,
    clock: Date.now(),
    samples: samples.map((sample) => kNames.map((name) => (sample[name] === null ? null : Number(sample[name].toFixed(3))))),
  };
  try {
    sessionStorage.setItem(kKey, JSON.stringify(kept));
  } catch {
    // Without storage the charts begin anew.
  }
}

// The samples from before the reload, with a gap for the time between, if it is still the same engine.
function recalled(now: Live): Sample[] {
  try {
    const kept = JSON.parse(sessionStorage.getItem(kKey) ?? 'null') as Kept | null;
    if (!kept || kept.model !== now.model || kept.scope !== now.scope || kept.engine > now.now) return [];
    // Engine and clock must have gone on alike: another engine that happens to be older is not this one.
    const gone = now.now - kept.engine;
    if (Math.abs(gone - (Date.now() - kept.clock) / 1000) > 5) return [];
    const samples = kept.samples.map((row) => Object.fromEntries(kNames.map((name, i) => [name, row[i] ?? null])));
    return [...(samples as unknown as Sample[]), ...gap(gone)].slice(-kSamples);
  } catch {
    return [];
  }
}

function gap(seconds: number): Sample[] {
  return Array<Sample>(Math.min(kSamples, Math.max(1, Math.round(seconds / kPeriod)))).fill(kGap);
}

// Watches until the signal; comes back when the connection breaks.
async function watch(signal: AbortSignal): Promise<void> {
  let before = seen.value.now;
  for await (const now of live(signal)) {
    const known = before;
    before = now;
    seen.update((old) => {
      if (!known) return { now, problem: '', samples: recalled(now) };
      if (now.now < known.now || now.model !== known.model) return { now, problem: '', samples: [] };
      const late = now.now - known.now > 4 * kPeriod + 1 ? gap(now.now - known.now) : [sampleOf(known, now)];
      return { now, problem: '', samples: [...old.samples, ...late].slice(-kSamples) };
    });
  }
  throw new ApiError('The connection ended.', 0);
}

// Looks while the page can be seen; returns what ends it.
export function follow(): () => void {
  let control = new AbortController();
  let timer = 0;
  let gone = false;
  const start = async () => {
    control = new AbortController();
    const { signal } = control;
    try {
      await watch(signal);
    } catch (failed) {
      if (gone || signal.aborted) return;
      seen.update((old) => ({ ...old, problem: failed instanceof Error ? failed.message : String(failed) }));
      timer = window.setTimeout(() => void start(), 2000);
    }
  };
  const again = () => {
    clearTimeout(timer);
    control.abort();
    if (!document.hidden) void start();
  };
  const unwatch = apiKey.watch(() => {
    seen.set({ samples: [], problem: '' });
    again();
  });
  document.addEventListener('visibilitychange', again);
  window.addEventListener('pagehide', keep);
  again();
  return () => {
    gone = true;
    keep();
    clearTimeout(timer);
    control.abort();
    unwatch();
    document.removeEventListener('visibilitychange', again);
    window.removeEventListener('pagehide', keep);
  };
}
