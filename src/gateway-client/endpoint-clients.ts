// A client for each gateway behind a Service that is called. Builds on client.ts and endpoints.ts.
import { type Clock, systemClock } from '../runtime/clock.ts';
import { formatAddress } from '../runtime/address.ts';
import type { Logger } from '../runtime/log.ts';
import { CsiClient, type CsiClientOptions } from './client.ts';
import type { GatewaySecurity } from './credentials.ts';
import type { Endpoints } from './endpoints.ts';

export interface EndpointClientOptions {
  readonly endpoints: Endpoints;
  readonly security: Pick<GatewaySecurity, 'tls'>;
  /** As in CsiClientOptions. */
  readonly showsShortSecrets?: boolean;
  /** How long a connection stays open without a call. */
  readonly idleMs?: number;
  readonly clock?: Clock;
  readonly log: Logger;
}

/** Longer than the pauses between the runs of a busy node, so that it is not connected to anew for
 * each volume. */
const IDLE_MS = 30_000;
/** Connections that are kept open, as long as so many suffice for the calls under way. Each takes
 * about 110 KiB, most of it outside the heap. */
const MOST_OPEN = 128;

interface Held {
  /** Where its gateway listens. */
  readonly target: string;
  readonly client: CsiClient;
}

/** The clients of gateways that come and go. A connection is opened by the first call, and closed
 * when it is idle or too many others are open. */
export class EndpointClients {
  readonly #options: EndpointClientOptions;
  readonly #metadataFor: (name: string) => CsiClientOptions['metadata'];
  /** By the gateway's name. The least recently used come first. */
  readonly #held = new Map<string, Held>();
  /** Clients of gateways that are gone, which are closed when their calls have ended. */
  readonly #retired = new Set<CsiClient>();
  readonly #timer: NodeJS.Timeout;

  /** @param metadataFor  by which a gateway sees whether it is the one that is meant */
  constructor(
    options: EndpointClientOptions,
    metadataFor: (name: string) => CsiClientOptions['metadata'],
  ) {
    this.#options = options;
    this.#metadataFor = metadataFor;
    const { idleMs = IDLE_MS, endpoints } = options;
    this.#timer = setInterval(() => this.#closeIdle(idleMs), Math.max(10, idleMs / 4));
    endpoints.onChange((name) => this.#forgetOutdated(name));
  }

  /** Number of clients, each with a connection of its own once it was called. */
  get connections(): number {
    return this.#held.size + this.#retired.size;
  }

  /** How far the clock of each gateway is ahead of this process's, by the gateway's name; of those
   * that have a client. */
  clocks(): readonly (readonly [string, number | undefined])[] {
    return [...this.#held].map(([name, { client }]) => [name, client.aheadMs]);
  }

  /** The client of a gateway; undefined if there is no such gateway now. */
  get(name: string): CsiClient | undefined {
    const { endpoints, security, showsShortSecrets = false, clock = systemClock } = this.#options;
    const address = endpoints.addressOf(name);
    if (address === undefined) return undefined;
    const target = formatAddress(address);
    const held = this.#held.get(name);
    this.#held.delete(name);
    if (held?.target === target) {
      this.#held.set(name, held);
      return held.client;
    }
    if (held !== undefined) this.#retired.add(held.client);
    if (this.#held.size >= MOST_OPEN) this.#closeLeastUsed();
    const { log } = this.#options;
    const tls = security.tls && {
      ...security.tls,
      serverName: security.tls.serverName === '' ? endpoints.serverName : security.tls.serverName,
    };
    const metadata = this.#metadataFor(name) ?? {};
    const client = new CsiClient({ address, log, tls, showsShortSecrets, clock, metadata });
    this.#held.set(name, { target, client });
    return client;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const { client } of this.#held.values()) client.close();
    for (const client of this.#retired) client.close();
    this.#held.clear();
    this.#retired.clear();
  }

  #forgetOutdated(name: string): void {
    const held = this.#held.get(name);
    const address = this.#options.endpoints.addressOf(name);
    if (held === undefined || (address && formatAddress(address) === held.target)) return;
    this.#held.delete(name);
    this.#retired.add(held.client);
  }

  #closeLeastUsed(): void {
    for (const [name, { client }] of this.#held) {
      if (client.idleMs === 0) continue;
      this.#held.delete(name);
      return client.close();
    }
  }

  #closeIdle(idleMs: number): void {
    for (const [name, { client }] of this.#held)
      if (client.idleMs > idleMs) {
        this.#held.delete(name);
        client.close();
      }
    for (const client of this.#retired)
      if (client.idleMs > 0) {
        this.#retired.delete(client);
        client.close();
      }
  }
}
