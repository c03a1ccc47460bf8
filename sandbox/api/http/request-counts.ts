import type { RequestInfo } from './request-info.ts';

/** Counts requests by verb and resource. */
export class RequestCounts {
  readonly #counts = new Map<string, number>();

  /** @param limit  of a list */
  add({ verb, plural, subresource }: RequestInfo, limit: string | null): void {
    const part = subresource === undefined ? '' : `/${subresource}`;
    // Whoever lists one object wants to know the version of the collection.
    const key = `${verb} ${plural}${part}${limit === '1' ? ' limit=1' : ''}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** By 'verb plural[/subresource][ limit=1]', e.g. `{ 'create persistentvolumes': 1000 }`. */
  snapshot(): Record<string, number> {
    return Object.fromEntries([...this.#counts].sort(([a], [b]) => a.localeCompare(b)));
  }

  reset(): void {
    this.#counts.clear();
  }
}
