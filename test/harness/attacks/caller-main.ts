import { setTimeout as delay } from 'node:timers/promises';
import { CsiClient } from '#src/gateway-client/client.ts';
import type { ClientTls } from '#src/gateway-client/credentials.ts';
import { CsiError } from '#src/csi/status.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { TlsMaterial } from '#src/runtime/tls-files.ts';
import { verdict, volumeRequest } from '../csi-gateway.ts';
import { until } from '../until.ts';

/* The program of an allowed caller: calls a gateway 50 times a second, as jobs does, and one more
 * time a second on a new connection, as a process that has just started. */

/** Whom it calls. */
export interface CallerOrder {
  readonly address: string;
  readonly tls: TlsMaterial | undefined;
  /** Calls at once, four times, before it reports that it is ready: the gateway has then compiled
   * its code and holds the buffers of ordinary work. */
  readonly warmUpCalls: number;
}

/** What became of its calls since the last report. */
export interface CallerReport {
  /** Milliseconds of each call that succeeded. */
  readonly latenciesMs: readonly number[];
  /** Milliseconds of each call on a new connection, that included. */
  readonly newConnectionsMs: readonly number[];
  /** Codes and texts of those that failed, and whether they are ambiguous. */
  readonly failures: readonly string[];
  readonly newConnectionFailures: readonly string[];
}

const INTERVAL_MS = 20;
const TIMEOUT_MS = 10_000;

class Caller {
  readonly #order: CallerOrder;
  readonly #client: CsiClient;
  readonly #running = new Set<Promise<void>>();
  #count = 0;
  #report = emptyReport();

  constructor(order: CallerOrder) {
    this.#order = order;
    this.#client = this.#connect();
  }

  /** Calls until the signal aborts, at a fixed rate, whether or not earlier calls have ended. */
  async run(signal: AbortSignal): Promise<void> {
    const startedMs = performance.now();
    for (let tick = 1; !signal.aborted; tick += 1) {
      this.#track(this.#callOnce());
      if (tick % 50 === 0) this.#track(this.#callOnNewConnection());
      await delay(Math.max(0, startedMs + tick * INTERVAL_MS - performance.now()));
    }
  }

  /** Waits for the calls under way and reports all since the last report. */
  async takeReport(): Promise<CallerReport> {
    await Promise.all(this.#running);
    const report = this.#report;
    this.#report = emptyReport();
    return report;
  }

  /** Waits until the gateway forwards calls, and warms it up. */
  async prepare(): Promise<void> {
    const isServed = (): Promise<boolean> =>
      this.#change(this.#client, TIMEOUT_MS).then(
        () => true,
        () => false,
      );
    await until(isServed, 'the gateway forwards calls');
    for (let round = 0; round < 4; round += 1)
      await Promise.all(Array.from({ length: this.#order.warmUpCalls }, isServed));
  }

  #connect(): CsiClient {
    const { address, tls } = this.#order;
    const source = tls && { current: tls, onChange: () => () => undefined };
    const security: ClientTls | undefined = source && { source, serverName: '' };
    return new CsiClient({
      address: parseAddress('gateway', address),
      log: silentLog,
      tls: security,
    });
  }

  #track(call: Promise<void>): void {
    this.#running.add(call);
    void call.finally(() => this.#running.delete(call));
  }

  async #change(client: CsiClient, timeoutMs: number): Promise<void> {
    this.#count += 1;
    const name = `volume-${process.pid}-${this.#count}`;
    if (this.#count % 2 === 0) await client.deleteVolume({ volumeId: name }, { timeoutMs });
    else await client.createVolume(volumeRequest(name), { timeoutMs });
  }

  async #callOnce(): Promise<void> {
    const { latenciesMs, failures } = this.#report;
    await measure(() => this.#change(this.#client, TIMEOUT_MS), latenciesMs, failures);
  }

  async #callOnNewConnection(): Promise<void> {
    const { newConnectionsMs, newConnectionFailures } = this.#report;
    const client = this.#connect();
    await measure(() => this.#change(client, TIMEOUT_MS), newConnectionsMs, newConnectionFailures);
    client.close();
  }
}

async function measure(
  call: () => Promise<void>,
  latenciesMs: number[],
  failures: string[],
): Promise<void> {
  const startedMs = performance.now();
  try {
    await call();
    latenciesMs.push(performance.now() - startedMs);
  } catch (error) {
    failures.push(
      error instanceof CsiError ? `${verdict(error)}: ${error.message}` : String(error),
    );
  }
}

function emptyReport(): { readonly [K in keyof CallerReport]: CallerReport[K][number][] } {
  return { latenciesMs: [], newConnectionsMs: [], failures: [], newConnectionFailures: [] };
}

async function start(order: CallerOrder): Promise<void> {
  const caller = new Caller(order);
  await caller.prepare();
  process.send?.('ready');
  let pause = new AbortController();
  let running = Promise.resolve();
  process.on('message', (command: 'start' | 'stop') => {
    if (command === 'start') {
      pause = new AbortController();
      running = caller.run(pause.signal);
    } else {
      pause.abort();
      void running.then(() => caller.takeReport()).then((report) => process.send?.(report));
    }
  });
}

process.once('message', (order: CallerOrder) => void start(order));
process.once('disconnect', () => process.exit(0));
