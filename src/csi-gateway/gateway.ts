import type { Registry } from 'prom-client';
import type { Address } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { defaultMethods } from './default-methods.ts';
import { CallLimiter, type MaxInFlight } from './call-limiter.ts';
import type { ListenerTls } from './caller-connections.ts';
import { DriverConnection, type DriverIdentity } from './driver-connection.ts';
import { Forwarder } from './forwarder.ts';
import { HealthService } from './health-service.ts';
import { SingleFlight } from './single-flight.ts';
import { createGatewayMetrics } from './metrics.ts';
import type { ReaperLimits } from './connection-reaper.ts';
import { startGatewayServer } from './server.ts';

export interface GatewayOptions {
  /** The driver's socket. */
  readonly driver: Address;
  readonly listen: Address;
  /** Further doors. */
  readonly alsoListen?: readonly Address[];
  /** For doors that are TCP; plaintext where absent. */
  readonly tls?: ListenerTls;
  /** Plaintext TCP beyond loopback. */
  readonly insecure?: boolean;
  /** No limit where absent. */
  readonly maxInFlight?: MaxInFlight;
  readonly adaptiveLimit?: boolean;
  readonly reaperLimits?: ReaperLimits;
  readonly allowAll: boolean;
  readonly probeTimeoutMs: number;
  readonly maxMessageBytes: number;
  /** Log each call with its messages, secrets stripped. */
  readonly logMessages: boolean;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  /** See DriverConnectionOptions. */
  readonly probeIntervalMs?: number;
}

export interface Gateway {
  /** Where it listens; the first of its doors. */
  readonly address: Address;
  readonly addresses: readonly Address[];
  /** Why the driver can't be used right now; undefined when it can. */
  readonly trouble: string | undefined;
  /** What the driver said of itself; undefined while it is not ready. */
  readonly identity: DriverIdentity | undefined;
  /** Refuses new calls, waits for those under way, at most that long, and ends. */
  close(graceMs: number): Promise<void>;
}

/** Puts the gateway together and opens its door; it does not wait for the driver.
 * @throws UsageError if it can't listen there */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { clock, log, maxMessageBytes } = options;
  const metrics = createGatewayMetrics(options.metrics);
  const driver = new DriverConnection({
    address: options.driver,
    probeTimeoutMs: options.probeTimeoutMs,
    maxMessageBytes,
    clock,
    log,
    metrics,
    ...(options.probeIntervalMs === undefined ? {} : { probeIntervalMs: options.probeIntervalMs }),
  });
  const forwarder = new Forwarder({
    driver,
    allowed: options.allowAll ? undefined : defaultMethods,
    inFlight: new SingleFlight(),
    caps: new CallLimiter({
      max: options.maxInFlight ?? { every: Infinity, byPath: new Map() },
      adaptive: options.adaptiveLimit ?? false,
      clock,
      onLimit: (path, limit) => metrics.setAdaptiveLimit(path, limit),
    }),
    maxMessageBytes,
    clock,
    log,
    // Messages are read with descriptors, which nothing else here needs.
    logCall: options.logMessages ? (await import('./log-call.ts')).logCall : undefined,
    metrics,
  });
  let isClosing = false;
  const server = await startGatewayServer({
    addresses: [options.listen, ...(options.alsoListen ?? [])],
    tls: options.tls,
    insecure: options.insecure ?? false,
    ...(options.reaperLimits === undefined ? {} : { reaperLimits: options.reaperLimits }),
    forwarder,
    health: new HealthService(() => !isClosing && driver.trouble === undefined),
    metrics,
    maxMessageBytes,
    clock,
    log,
  });
  driver.start();
  return {
    address: server.addresses[0] ?? options.listen,
    addresses: server.addresses,
    get trouble() {
      return driver.trouble;
    },
    get identity() {
      return driver.identity;
    },
    close: async (graceMs) => {
      isClosing = true;
      await server.drain(graceMs);
      await driver.close();
    },
  };
}
