import type { RequestInfo } from './request-info.ts';

/** Counts requests by verb and resource. */
export class RequestCounts {
  readonly #counts = new Map<string, number>();

  add({ verb, plural, subresource }: RequestInfo): void {
    const key = `${verb} ${plural}${subresource === undefined ? '' : `/${subresource}`}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** By 'verb plural[/subresource]', e.g. `{ 'create persistentvolumes': 1000 }`. */
  snapshot(): Record<string, number> {
    return Object.fromEntries([...this.#counts].sort(([a], [b]) => a.localeCompare(b)));
  }

  reset(): void {
    this.#counts.clear();
  }
}
