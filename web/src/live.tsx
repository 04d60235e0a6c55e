// The live view: what the engine does right now, several times a second, beside what the machine could do at most.
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import type { Live, Percentiles } from './api';
import { Chart } from './chart';
import { follow, kSamples, type Sample, seen } from './feed';
import { duration } from './message';
import { kStates, PageMap } from './pagemap';
import { useStore } from './store';

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

interface PanelProps {
  title: string;
  name?: string;
  keys?: [string, string][];
  children: ComponentChildren;
}

function Panel(props: PanelProps) {
  return (
    <section class="panel" data-panel={props.name}>
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

function limitShare(limit: number | null): string {
  if (limit === null) return '–';
  return limit > 1.005 ? 'over 100 %' : `${(limit * 100).toFixed(0)} %`;
}

function limitNote(now: Live): string {
  if (!now.limit_known) return 'millrace bench measures it once';
  if (now.limit === null) return 'shown while steps run';
  if (now.limit > 1.005) return 'weights in the processor\'s cache, or measured on a busy machine: millrace bench --remeasure';
  return `a step takes ${duration(now.step.ms)}`;
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
        <Tile name="Machine's limit" value={limitShare(limit)}
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
  return `${name} over the last two minutes, now ${count(value ?? 0)}`;
}

function percentText(part: number, whole: number): string {
  return whole > 0 ? `${((100 * part) / whole).toFixed(0)} %` : '–';
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

// Guesses: how many tokens a pass of the model gives a sequence, and how many guesses were right.
function Speculation({ now, samples }: { now: Live; samples: Sample[] }) {
  const passes = now.generated_tokens - now.accepted_drafts;
  const any = now.draft_windows > 0;
  return (
    <Panel title="Speculation" name="speculation"
      keys={any ? [['used', 'tokens a pass'], ['shared', 'guesses kept, of 1']] : undefined}>
      {any ? (
        <>
          <Chart capacity={kSamples} label={said('Tokens a pass', samples.findLast((s) => s.pass !== null)?.pass)}
            lines={[
              { color: '--used', values: smooth(samples, (s) => s.pass), fill: true },
              { color: '--shared', values: smooth(samples, (s) => s.kept) },
            ]} />
          <p class="faint">
            In all {(now.generated_tokens / Math.max(1, passes)).toFixed(2)} tokens a pass;{' '}
            {count(now.accepted_drafts)} of {count(now.drafted_tokens)} guesses kept
            {' '}({percentText(now.accepted_drafts, now.drafted_tokens)}).
          </p>
        </>
      ) : (
        <p class="faint">Nothing was guessed so far. <code>serve --speculate ngram</code> guesses ahead.</p>
      )}
    </Panel>
  );
}

function Grammar({ now, samples }: { now: Live; samples: Sample[] }) {
  const any = now.bound.answers > 0;
  return (
    <Panel title="Answers of a form" name="grammar" keys={any ? [['used', 'tokens/s under a mask']] : undefined}>
      {any ? (
        <>
          <Chart capacity={kSamples} label={said('Tokens a second under a mask', samples[samples.length - 1]?.bound)}
            lines={[{ color: '--used', values: smooth(samples, (s) => s.bound), fill: true }]} />
          <p class="faint">
            {count(now.bound.answers)} {now.bound.answers === 1 ? 'answer' : 'answers'} by a schema or a grammar,{' '}
            {count(now.bound.tokens)} tokens chosen under masks ({percentText(now.bound.tokens, now.generated_tokens)} of all).
          </p>
        </>
      ) : (
        <p class="faint">No answer had to be of a form so far. A JSON schema can be set in the settings of the chat.</p>
      )}
    </Panel>
  );
}

// Where prompts found their beginnings, and what each store holds.
function Tiers({ now, samples }: { now: Live; samples: Sample[] }) {
  const { pages, prefix, store } = now;
  return (
    <Panel title="Cache hits" name="tiers" keys={[['used', 'share of prompt tokens found']]}>
      <Chart capacity={kSamples} most={1} label={said('Share of prompt tokens found', samples.findLast((s) => s.found !== null)?.found)}
        format={(value) => `${Math.round(100 * value)} %`}
        lines={[{ color: '--used', values: smooth(samples, (s) => s.found), fill: true }]} />
      <table class="times">
        <tbody>
          <tr><th scope="row">Prompt tokens found</th><td>{count(prefix.found_tokens)} of {count(prefix.asked_tokens)}</td></tr>
          <tr><th scope="row">Of them in the host's memory</th><td>{count(prefix.second_tokens)}</td></tr>
          <tr><th scope="row">Of them in a page store</th><td>{count(prefix.store_tokens)}</td></tr>
          <tr><th scope="row">Prompts that began alike</th><td>{count(prefix.hits)} of {count(prefix.lookups)}</td></tr>
          <tr><th scope="row">Pages kept for others</th><td>{count(pages.cached)} of {count(pages.total)}</td></tr>
          <tr><th scope="row">Pages moved out</th><td>{count(pages.second_used)}</td></tr>
          <tr>
            <th scope="row">Stretches from a page store</th>
            <td>{count(store.found)}, of {count(store.stored)} put there</td>
          </tr>
        </tbody>
      </table>
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
        {count(now.preemptions)} preempted.
      </p>
    </Panel>
  );
}

export function LiveView() {
  useEffect(follow, []);
  const { now, samples, problem } = useStore(seen);
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
          <div class="panels" data-samples={samples.length}>
            <Charts samples={samples} steps={now.scope === 'all'} />
            {now.scope === 'all' && <Cache now={now} />}
            <Queue samples={samples} />
            <Latencies now={now} />
            {now.scope === 'all' && (
              <>
                <Tiers now={now} samples={samples} />
                <Speculation now={now} samples={samples} />
                <Grammar now={now} samples={samples} />
              </>
            )}
          </div>
        </>
      ) : (
        !problem && <p class="faint">Connecting…</p>
      )}
    </div>
  );
}
