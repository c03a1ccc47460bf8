import { type Address, formatAddress } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { CsiClient } from './client.ts';
import type { GatewaySecurity } from './credentials.ts';

export interface InstanceCheckOptions {
  readonly addresses: readonly Address[];
  readonly security: Pick<GatewaySecurity, 'tls'>;
  readonly timeoutMs: number;
  readonly periodMs?: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Each time costs a handshake. */
const PERIOD_MS = 5_000;
/** For how long an address counts as leading to several gateways after it was last seen to. */
const REMEMBERED_MS = 60_000;
/** Ids that are remembered of one address. */
const MOST_IDS = 100;

interface Seen {
  /** Ids of gateways, the last one at the end. */
  readonly ids: Set<string>;
  /** When one answered again after another one had; undefined if none did. */
  returnedMs: number | undefined;
}

/** Connects anew to each address on TCP every few seconds, and notes which gateway answers. An id
 * that comes back after another one shows that the address leads to several gateways at once, as
 * that of a Service does: a gateway that was restarted has a new id. Their drivers would work at
 * the same time, without knowing of each other. */
export class InstanceCheck {
  readonly #options: InstanceCheckOptions;
  readonly #seen = new Map<string, Seen>();
  readonly #loop: PollLoop;

  constructor(options: InstanceCheckOptions) {
    this.#options = options;
    const { clock, log, periodMs = PERIOD_MS } = options;
    this.#loop = new PollLoop({
      step: async () => void (await Promise.all(options.addresses.map((each) => this.#ask(each)))),
      onError: (err) => log.debug({ err }, 'could not ask which gateway answers; trying again'),
      periodMs,
      clock,
    });
  }

  /** For /readyz: which address leads to several gateways, and what to do. */
  get trouble(): string | undefined {
    const sinceMs = this.#options.clock.nowMs() - REMEMBERED_MS;
    const bad = [...this.#seen].filter(([, { returnedMs = -Infinity }]) => returnedMs > sinceMs);
    return bad.length === 0 ? undefined : describeSeveral(bad.map(([address]) => address));
  }

  close(): void {
    void this.#loop.stop();
  }

  async #ask(address: Address): Promise<void> {
    if (address.kind === 'unix') return;
    const { security, timeoutMs, clock, log } = this.#options;
    const client = new CsiClient({
      address,
      tls: security.tls,
      clock,
      log,
      onAnswer: ({ instance }) => void (instance && this.#note(formatAddress(address), instance)),
    });
    // Whatever the answer is, and whether there is one, is the driver watch's to report.
    await client.getPluginInfo({ timeoutMs }).catch(() => undefined);
    client.close();
  }

  #note(address: string, id: string): void {
    const { clock, log } = this.#options;
    const seen = this.#seen.get(address) ?? { ids: new Set(), returnedMs: undefined };
    this.#seen.set(address, seen);
    const isLast = [...seen.ids].at(-1) === id;
    if (!isLast && seen.ids.delete(id)) {
      const wasKnown = this.trouble !== undefined;
      seen.returnedMs = clock.nowMs();
      if (!wasKnown) log.warn({ gateway: address }, describeSeveral([address]));
    }
    seen.ids.add(id);
    const [oldest] = seen.ids;
    if (seen.ids.size > MOST_IDS && oldest !== undefined) seen.ids.delete(oldest);
  }
}

function describeSeveral(addresses: readonly string[]): string {
  return (
    `several gateways answer at ${addresses.join(', ')}, so that replicas of the driver get calls ` +
    'at the same time: name the Service by --gateway-service=NAMESPACE/NAME, or each gateway by a ' +
    '--gateway of its own'
  );
}
