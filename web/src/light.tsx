// The connection, as a light with words: what the model is called, or what is wrong and what happens next.
import { useEffect, useState } from 'preact/hooks';
import { keyWanted } from './api';
import { type Link, link, look, model } from './connection';
import { useStore } from './store';

function useCountdown(until: number | null): number {
  const [, again] = useState(0);
  useEffect(() => {
    if (until === null) return;
    const timer = window.setInterval(() => again((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, [until]);
  return until === null ? 0 : Math.max(0, Math.ceil((until - Date.now()) / 1000));
}

function words(now: Link, name: string, seconds: number): string {
  switch (now.state) {
    case 'connected': return name || 'connected';
    case 'connecting': return 'connecting';
    case 'loading': return 'loading the model';
    case 'refused': return 'key refused';
    case 'keyless': return 'key needed';
    case 'lost': return seconds > 0 ? `not reachable, again in ${seconds} s` : 'reconnecting';
  }
}

export function Light() {
  const now = useStore(link);
  const name = useStore(model);
  const seconds = useCountdown(now.state === 'lost' ? now.again : null);
  const said = words(now, name, seconds);
  // Read out when the state changes, not with every second.
  const plain = now.state === 'lost' ? 'The server is not reachable.' : now.state === 'connected' ? 'Connected.' : said;
  return (
    <div class="model" data-state={now.state} title={said}>
      <i class="dot" aria-hidden="true" />
      <span class="said">{said}</span>
      {now.state === 'lost' && (
        <button type="button" class="quiet small" onClick={() => void look()}>Try now</button>
      )}
      {(now.state === 'refused' || now.state === 'keyless') && (
        <button type="button" class="quiet small" onClick={() => keyWanted.set(true)}>Enter key</button>
      )}
      <span class="hidden" role="status">{plain}</span>
    </div>
  );
}
