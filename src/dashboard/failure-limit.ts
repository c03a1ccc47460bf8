import type { Clock } from '../runtime/clock.ts';

/** Wrong passwords that one address may send in a window. */
export const MAX_FAILURES = 5;

/** The window begins with an address's first failure. */
export const WINDOW_MS = 60_000;

/** Addresses remembered; beyond it the one whose window is oldest is forgotten. */
const MAX_ADDRESSES = 10_000;

/** Slows down whoever guesses passwords. */
export class FailureLimit {
  readonly #clock: Clock;
  readonly #windows = new Map<string, { readonly endsAtMs: number; failures: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** How long this address has to wait; 0 if it may try. */
  waitMs(address: string): number {
    const window = this.#open(address);
    return window !== undefined && window.failures >= MAX_FAILURES
      ? window.endsAtMs - this.#clock.nowMs()
      : 0;
  }

  failed(address: string): void {
    const window = this.#open(address);
    if (window !== undefined) {
      window.failures += 1;
      return;
    }
    this.#windows.set(network(address), { endsAtMs: this.#clock.nowMs() + WINDOW_MS, failures: 1 });
    for (const oldest of this.#windows.keys()) {
      if (this.#windows.size <= MAX_ADDRESSES) break;
      this.#windows.delete(oldest);
    }
  }

  succeeded(address: string): void {
    this.#windows.delete(network(address));
  }

  #open(address: string) {
    const window = this.#windows.get(network(address));
    if (window === undefined || window.endsAtMs > this.#clock.nowMs()) return window;
    this.#windows.delete(network(address));
    return undefined;
  }
}

/** One customer's IPv6 network counts as one address: it has 2^64 of them. */
function network(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1];
  if (mapped !== undefined || !address.includes(':')) return mapped ?? address;
  const [head = '', tail] = address.split('::');
  const groups = head.split(':').filter((group) => group !== '');
  // With "::" among the first four groups the missing ones are zeros.
  return (tail === undefined ? groups : [...groups, '0', '0', '0', '0']).slice(0, 4).join(':');
}
