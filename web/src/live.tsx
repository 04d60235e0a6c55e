// The live view: what the engine does right now, several times a second, beside what the machine could do at most.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, apiKey, live, type Live, type Percentiles } from './api';
import { Chart } from './chart';
import { duration } from './message';
import { kStates, PageMap } from './pagemap';
import { useStore } from './store';

const kSamples = 360; // a minute and a half at four a second

interface Sample {
  out: number; // tokens a second
  into: number;
  running: number;
  waiting: number;
  tokens: number | null; // a step
  sequences: number | null;
}

interface Seen {
  now?: Live;
  samples: Sample[];
  problem: string;
}

function sampleOf(before: Live, after: Live): Sample {
  const seconds = Math.max(1e-3, after.now - before.now);
  const stepped = after.steps > before.steps;
  return {
    out: Math.max(0, after.tokens_out - before.tokens_out) / seconds,
    into: Math.max(0, after.computed_tokens - before.computed_tokens - (after.tokens_out - before.tokens_out)) / seconds,
    running: after.running,
    waiting: after.waiting,
    tokens: stepped ? after.step.tokens : null,
    sequences: stepped ? after.step.sequences : null,
  };
}

// Watches /live while the page can be seen, and comes back when the connection breaks.
function useLive(): Seen {
  const [seen, setSeen] = useState<Seen>({ samples: [], problem: '' });
  const key = useStore(apiKey);
  useEffect(() => {
    let control = new AbortController();
    let timer = 0;
    let gone = false;
    const watch = async () => {
      control = new AbortController();
      let before: Live | undefined;
      try {
        for await (const now of live(control.signal)) {
          const sample = before && now.now >= before.now ? sampleOf(before, now) : undefined;
          before = now;
          setSeen((old) => ({
            now,
            problem: '',
            samples: sample ? [...old.samples, sample].slice(-kSamples) : old.samples,
          }));
        }
        throw new ApiError('The connection ended.', 0);
      } catch (failed) {
        if (gone || control.signal.aborted) return;
        setSeen((old) => ({ ...old, problem: failed instanceof Error ? failed.message : String(failed) }));
        timer = window.setTimeout(watch, 2000);
      }
    };
    const visibility = () => {
      clearTimeout(timer);
      control.abort();
      if (!document.hidden) void watch();
    };
    document.addEventListener('visibilitychange', visibility);
    if (!document.hidden) void watch();
    return () => {
      gone = true;
      clearTimeout(timer);
      control.abort();
      document.removeEventListener('visibilitychange', visibility);
    };
  }, [key]);
  return seen;
}

function count(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(value >= 10 || Number.isInteger(value) ? 0 : 1);
}

function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

function Tile(props: { name: string; value: string; unit?: string; note?: string; children?: ComponentChildren }) {
  return (
    <div class="tile">
      <dt>{props.name}</dt>
      <dd>
        <b>{props.value}</b>
        {props.unit && <span> {props.unit}</span>}
        {props.note && <small>{props.note}</small>}
        {props.children}
      </dd>
    </div>
  );
}

function Panel(props: { title: string; keys?: [string, string][]; wide?: boolean; children: ComponentChildren }) {
  return (
    <section class={`panel${props.wide ? ' wide' : ''}`}>
      <header>
        <h2>{props.title}</h2>
        {props.keys && (
          <ul class="keys">
            {props.keys.map(([color, name]) => (
              <li key={name}><i class={`swatch ${color}`} aria-hidden="true" />{name}</li>
            ))}
          </ul>
        )}
      </header>
      {props.children}
    </section>
  );
}

function Times({ name, times }: { name: string; times: Percentiles }) {
  const show = (value: number) => (times.count > 0 ? duration(value) : '–');
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{show(times.p50)}</td>
      <td>{show(times.p95)}</td>
      <td>{show(times.p99)}</td>
    </tr>
  );
}

// The mean of the last second and a half: single samples jump.
function recent(samples: Sample[], of: (sample: Sample) => number | null, end = samples.length): number {
  const values = samples.slice(Math.max(0, end - 6), end).map(of).filter((value) => value !== null);
  return values.length > 0 ? values.reduce((a, b) => a + b, 0) / values.length : 0;
}

function limitNote(now: Live): string {
  if (!now.limit_known) return 'millrace bench measures it once';
  return now.limit === null ? 'shown while steps run' : `a step takes ${duration(now.step.ms)}`;
}

function Tiles({ now, samples }: { now: Live; samples: Sample[] }) {
  const limit = now.limit;
  return (
    <dl class="tiles">
      <Tile name="Writing" value={count(recent(samples, (s) => s.out))} unit="tokens/s" note={`${count(now.tokens_out)} in all`} />
      <Tile name="Reading prompts" value={count(recent(samples, (s) => s.into))} unit="tokens/s"
        note={`${count(now.cached_tokens)} more from the cache`} />
      <Tile name="Requests" value={count(now.running)} unit="running" note={`${count(now.waiting)} waiting, ${count(now.finished)} done`} />
      {now.scope === 'all' && (
        <Tile name="Machine's limit" value={limit === null ? '–' : `${(limit * 100).toFixed(0)} %`}
          note={limitNote(now)}>
          <meter min={0} max={1} value={limit ?? 0} aria-label="Share of the machine's limit" />
        </Tile>
      )}
    </dl>
  );
}

// Each value as the mean of itself and those just before it.
function smooth(samples: Sample[], of: (sample: Sample) => number | null): (number | null)[] {
  return samples.map((sample, i) => (of(sample) === null ? null : recent(samples, of, i + 1)));
}

function said(name: string, value: number | null | undefined): string {
  return `${name} over the last minute and a half, now ${count(value ?? 0)}`;
}

function Charts({ samples, steps }: { samples: Sample[]; steps: boolean }) {
  const last = samples[samples.length - 1];
  return (
    <>
      <Panel title="Throughput, tokens/s" keys={[['used', 'written'], ['cached', 'prompts read']]}>
        <Chart capacity={kSamples} label={said('Tokens a second', last?.out)}
          lines={[
            { color: '--cached', values: smooth(samples, (s) => s.into) },
            { color: '--used', values: smooth(samples, (s) => s.out), fill: true },
          ]} />
      </Panel>
      {steps && (
        <Panel title="Batch per step" keys={[['used', 'tokens'], ['shared', 'sequences']]}>
          <Chart capacity={kSamples} label={said('Tokens in a step', last?.tokens)}
            lines={[
              { color: '--used', values: smooth(samples, (s) => s.tokens), fill: true },
              { color: '--shared', values: smooth(samples, (s) => s.sequences) },
            ]} />
        </Panel>
      )}
    </>
  );
}

function Queue({ samples }: { samples: Sample[] }) {
  return (
    <Panel title="Requests" keys={[['used', 'running'], ['shared', 'waiting']]}>
      <Chart capacity={kSamples} label={said('Requests waiting', samples[samples.length - 1]?.waiting)}
        lines={[
          { color: '--used', values: samples.map((s) => s.running), fill: true },
          { color: '--shared', values: samples.map((s) => s.waiting) },
        ]} />
    </Panel>
  );
}

function Cache({ now }: { now: Live }) {
  const { pages } = now;
  const counts: Record<string, number> = { u: pages.used, s: pages.shared, c: pages.cached, '.': pages.free };
  return (
    <section class="panel wide">
      <header>
        <h2>KV cache</h2>
        <ul class="keys">
          {kStates.map((state) => (
            <li key={state.letter} title={state.what}>
              <i class={`swatch ${state.color.slice(2)}`} aria-hidden="true" />
              {state.name} <b>{(counts[state.letter] ?? 0).toLocaleString('en')}</b>
            </li>
          ))}
        </ul>
      </header>
      <PageMap pages={pages} />
      <p class="faint">
        {bytes(now.kv_bytes.reserved)} held by running sequences, {bytes(now.kv_bytes.used)} of it with tokens in it.
      </p>
    </section>
  );
}

function Latencies({ now }: { now: Live }) {
  const drafts = now.drafted_tokens > 0 ? `, ${((100 * now.accepted_drafts) / now.drafted_tokens).toFixed(0)} % of drafts taken` : '';
  return (
    <Panel title="Latency, last 30 s">
      <table class="times">
        <thead>
          <tr><td /><th scope="col">p50</th><th scope="col">p95</th><th scope="col">p99</th></tr>
        </thead>
        <tbody>
          <Times name="First token" times={now.ttft_ms} />
          <Times name="Between tokens" times={now.itl_ms} />
        </tbody>
      </table>
      <p class="faint">
        {now.scope === 'all' && `${count(now.steps)} steps, `}{count(now.refused)} refused, {count(now.cancelled)} cancelled, {count(now.failed)} failed,{' '}
        {count(now.preemptions)} preempted{drafts}.
      </p>
    </Panel>
  );
}

export function LiveView() {
  const { now, samples, problem } = useLive();
  return (
    <div class="live" tabIndex={0} role="region" aria-label="Live view">
      <h2 class="hidden">Live view</h2>
      {problem && <p class="state bad" role="alert">{problem}</p>}
      {now ? (
        <>
          <Tiles now={now} samples={samples} />
          {now.scope === 'tenant' && (
            <p class="faint">
              Your own requests. Steps, cache and the machine's limit are everybody's; an operator's key shows them.
            </p>
          )}
          <div class="panels">
            <Charts samples={samples} steps={now.scope === 'all'} />
            {now.scope === 'all' && <Cache now={now} />}
            <Queue samples={samples} />
            <Latencies now={now} />
          </div>
        </>
      ) : (
        !problem && <p class="faint">Connecting…</p>
      )}
    </div>
  );
}
