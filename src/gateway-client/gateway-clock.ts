import type { Clock } from '../runtime/clock.ts';

/** A clock that nobody has looked at for so long may have been set meanwhile. */
const MAX_AGE_MS = 60_000;
/** By so much this process's own clock has to jump for the gateway's to be asked again. */
const OWN_JUMP_MS = 100;
/** An answer that took longer says little about the way there. */
const SHORT_CALL_MS = 1_000;

/** Learns a gateway's clock from the time that each of its answers brings. The gateway takes the
 * time as it answers, so it is late here by the way back: what is believed is never ahead of the
 * gateway's clock, and behind it by one way at most. */
export class GatewayClock {
  readonly #clock: Clock;
  #aheadMs: number | undefined;
  /** When the last answer came, on a clock that is never set. */
  #heardMs = -Infinity;
  /** How far that clock was from the process's own. */
  #ownMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Unix time of the gateway less that of this process; undefined if it sends none. */
  get aheadMs(): number | undefined {
    return this.#aheadMs;
  }

  /** Whether the gateway should be asked before its clock is relied on. */
  get isOutdated(): boolean {
    const steadyMs = performance.now();
    const jumpMs = this.#clock.nowMs() - steadyMs - this.#ownMs;
    return steadyMs - this.#heardMs > MAX_AGE_MS || Math.abs(jumpMs) > OWN_JUMP_MS;
  }

  /** @param sentMs  when the call was sent, by the clock of this process
   * @param time  as the gateway sent it; undefined from one that sends none */
  learn(sentMs: number, time: string | undefined): void {
    const nowMs = this.#clock.nowMs();
    this.#heardMs = performance.now();
    this.#ownMs = nowMs - this.#heardMs;
    if (time === undefined || !/^\d{1,16}$/.test(time)) {
      this.#aheadMs = undefined;
      return;
    }
    const leastMs = Number(time) - nowMs;
    const mostMs = Number(time) - sentMs;
    const aheadMs = this.#aheadMs ?? -Infinity;
    const isLikely = leastMs <= aheadMs && aheadMs <= mostMs && mostMs - leastMs < SHORT_CALL_MS;
    if (!isLikely) this.#aheadMs = leastMs;
  }
}

/** From here on operators are told: nothing that keeps clocks right leaves them so far apart. */
const SKEW_MS = 2_000;

/** In one line, which gateway's clock is furthest off; undefined if none is by seconds. */
export function describeSkew(
  gateways: Iterable<{ readonly address: string; readonly aheadMs: number | undefined }>,
): string | undefined {
  let most = { address: '', aheadMs: 0 };
  for (const { address, aheadMs = 0 } of gateways)
    if (Math.abs(aheadMs) > Math.abs(most.aheadMs)) most = { address, aheadMs };
  const { address, aheadMs } = most;
  if (Math.abs(aheadMs) < SKEW_MS) return undefined;
  const seconds = `${Math.abs(Math.round(aheadMs / 1_000))} s`;
  return (
    `the clock of the gateway ${address} is ${seconds} ${aheadMs > 0 ? 'ahead of' : 'behind'} ` +
    'this process’s; limits of calls are stated in the gateway’s: set the wrong one right'
  );
}
