import { TokenBucket } from '../../runtime/token-bucket.ts';

/** Senders that are remembered; beyond it, the one that was silent for longest is forgotten. */
const MAX_SENDERS = 10_000;
/** A sender that was silent for this long takes no share. */
const ACTIVE_MS = 10_000;
const COUNT_PERIOD_MS = 1_000;

interface Account {
  readonly own: TokenBucket;
  /** Renewed when the share changes. */
  fair: TokenBucket;
  share: number;
  usedMs: number;
}

/** Events that a sender may send at once however small its share is: some changes come together. */
const MIN_BURST = 5;

/** A tenth of a second's share at once: new senders come with a full bucket. */
function openShare(share: number, nowMs: number): TokenBucket {
  const burst = Math.max(MIN_BURST, share / 10);
  return new TokenBucket({ burst, perSecond: share, nowMs });
}

/** Limits events by sender, and all events together. Where there are too many in all, each sender
 * may send its share, so that those who send little are not refused for those who send much. */
export class SenderRates {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #totalPerSecond: number;
  readonly #total: TokenBucket;
  /** By sender; the one used last is last. */
  readonly #accounts = new Map<string, Account>();
  #active = 0;
  #countedMs = -Infinity;

  /** @param o.burstSeconds  how much of what was not used may be used at once; 1 unless given */
  constructor(o: {
    readonly perSecond: number;
    readonly totalPerSecond: number;
    readonly burstSeconds?: number;
    readonly nowMs: number;
  }) {
    const { burstSeconds = 1 } = o;
    this.#perSecond = o.perSecond;
    this.#burst = o.perSecond * burstSeconds;
    this.#totalPerSecond = o.totalPerSecond;
    this.#total = new TokenBucket({
      burst: o.totalPerSecond * burstSeconds,
      perSecond: o.totalPerSecond,
      nowMs: o.nowMs,
    });
  }

  /** Counts one event of a sender, if it may send one now.
   * @returns 0, or for how many ms the sender has to wait */
  take(sender: string, nowMs: number): number {
    const account = this.#accountOf(sender, nowMs);
    const waitMs = account.own.waitMs(nowMs);
    if (waitMs > 0) return waitMs;
    const isWithinShare = account.fair.take(nowMs);
    if (!this.#total.take(nowMs)) {
      if (!isWithinShare) return account.fair.waitMs(nowMs);
      this.#total.charge(1, nowMs);
    }
    account.own.take(nowMs);
    return 0;
  }

  /** Counts more events of a request that was let in: the sender waits for them later. */
  charge(sender: string, events: number, nowMs: number): void {
    const account = this.#accountOf(sender, nowMs);
    account.own.charge(events, nowMs);
    account.fair.charge(events, nowMs);
    this.#total.charge(events, nowMs);
  }

  #accountOf(sender: string, nowMs: number): Account {
    const known = this.#accounts.get(sender);
    if (known === undefined) this.#active += 1;
    const share = this.#shareAt(nowMs);
    const account = known ?? {
      own: new TokenBucket({ burst: this.#burst, perSecond: this.#perSecond, nowMs }),
      fair: openShare(share, nowMs),
      share,
      usedMs: nowMs,
    };
    if (account.share !== share) {
      account.fair = openShare(share, nowMs);
      account.share = share;
    }
    account.usedMs = nowMs;
    this.#accounts.delete(sender);
    this.#accounts.set(sender, account);
    for (const first of this.#accounts.keys()) {
      if (this.#accounts.size <= MAX_SENDERS) break;
      this.#accounts.delete(first);
    }
    return account;
  }

  /** Events per second of each sender if all that are active send as many. */
  #shareAt(nowMs: number): number {
    if (nowMs - this.#countedMs >= COUNT_PERIOD_MS) {
      this.#countedMs = nowMs;
      this.#active = [...this.#accounts.values()].filter(
        ({ usedMs }) => nowMs - usedMs < ACTIVE_MS,
      ).length;
    }
    // In powers of two, so that the shares stay the same while few come and go.
    return this.#totalPerSecond / 2 ** Math.ceil(Math.log2(Math.max(1, this.#active)));
  }
}
