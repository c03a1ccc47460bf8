import { networkOf } from '../../runtime/network-of.ts';
import { TokenBucket } from '../../runtime/token-bucket.ts';

/** Refused requests of one network that are answered at once, and per second from then on. */
const BUDGET = { burst: 20, perSecond: 5 };
const MAX_NETWORKS = 10_000;

/** Requests without a valid credential, by network. Those of a network that sends many are answered
 * late: whoever waits for the answer sends few. A right credential is never refused for it, since
 * an allowed sender may have the same address. */
export class FailureBudget {
  /** The network that failed last is last. */
  readonly #networks = new Map<string, TokenBucket>();

  countFailure(address: string, nowMs: number): void {
    const network = networkOf(address);
    const bucket = this.#networks.get(network) ?? new TokenBucket({ ...BUDGET, nowMs });
    bucket.take(nowMs);
    this.#networks.delete(network);
    this.#networks.set(network, bucket);
    for (const first of this.#networks.keys()) {
      if (this.#networks.size <= MAX_NETWORKS) break;
      this.#networks.delete(first);
    }
  }

  /** Whether this network has failed too often lately. */
  isSpent(address: string, nowMs: number): boolean {
    return (this.#networks.get(networkOf(address))?.waitMs(nowMs) ?? 0) > 0;
  }
}
