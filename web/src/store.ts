// A value somebody can watch. Components re-render when it is replaced; values are never changed in place.
import { useEffect, useState } from 'preact/hooks';

export class Store<T> {
  private watchers = new Set<() => void>();
  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }
  set(next: T): void {
    if (next === this.current) return;
    this.current = next;
    for (const watcher of [...this.watchers]) watcher();
  }
  update(change: (value: T) => T): void {
    this.set(change(this.current));
  }
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [, again] = useState(0);
  const shown = store.value;
  useEffect(() => {
    if (store.value !== shown) again((n) => n + 1); // it changed after this was rendered and before anybody watched
    return store.watch(() => again((n) => n + 1));
  }, [store]);
  return shown;
}

// localStorage may be absent (blocked) or full; the page then works without memory.
export function recall<T>(key: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(key);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}

export function remember(key: string, value: unknown): boolean {
  try {
    if (value === undefined) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
