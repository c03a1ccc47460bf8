import type { Clock } from '../runtime/clock.ts';

/** Wrong passwords that an address may send in one window. */
export const MAX_FAILURES = 5;
/** A window begins with an address's first failure. */
export const WINDOW_MS = 60_000;
/** Beyond this number of addresses, the one with the oldest window is dropped. */
const MAX_ADDRESSES = 10_000;

/** Counts wrong passwords by address, to slow down guessing. */
export class FailureLimit {
  readonly #clock: Clock;
  /** By address or network; the oldest window first. */
  readonly #windows = new Map<string, { readonly endsAtMs: number; failures: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** How long this address has to wait; 0 if it may try. */
  waitMs(address: string): number {
    const { failures, endsAtMs } = this.#openWindow(address) ?? { failures: 0, endsAtMs: 0 };
    return failures >= MAX_FAILURES ? endsAtMs - this.#clock.nowMs() : 0;
  }

  countFailure(address: string): void {
    const window = this.#openWindow(address);
    if (window !== undefined) {
      window.failures += 1;
      return;
    }
    const endsAtMs = this.#clock.nowMs() + WINDOW_MS;
    this.#windows.set(networkOf(address), { endsAtMs, failures: 1 });
    for (const oldest of this.#windows.keys()) {
      if (this.#windows.size <= MAX_ADDRESSES) break;
      this.#windows.delete(oldest);
    }
  }

  /** Forgets the failures of an address. */
  clear(address: string): void {
    this.#windows.delete(networkOf(address));
  }

  #openWindow(address: string) {
    const network = networkOf(address);
    const window = this.#windows.get(network);
    if (window === undefined || window.endsAtMs > this.#clock.nowMs()) return window;
    this.#windows.delete(network);
    return undefined;
  }
}

/** An IPv4 address as it is; the /64 of an IPv6 address, since one customer has all of it. */
function networkOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1];
  if (mapped !== undefined || !address.includes(':')) return mapped ?? address;
  const [head = '', tail] = address.split('::');
  const groups = head.split(':').filter((group) => group !== '');
  // If "::" is among the first four groups, the missing ones are zeros.
  return (tail === undefined ? groups : [...groups, '0', '0', '0', '0']).slice(0, 4).join(':');
}
