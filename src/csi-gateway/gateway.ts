import { logVerbosity, Metadata, setLogVerbosity } from '@grpc/grpc-js';
import type { Registry } from 'prom-client';
import { TIME_TRAILER } from '../csi/status.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import type { Address } from '../runtime/address.ts';
import { CallLimiter, type MaxInFlight } from './call-limiter.ts';
import { DriverConnection, type DriverConnectionOptions } from '../driver/driver-connection.ts';
import { Forwarder } from './forwarder.ts';
import { defaultMethods } from './flags.ts';
import { HealthService } from './health-service.ts';
import type { ListenerTls } from './listener.ts';
import { createGatewayMetrics } from '../driver/metrics.ts';
import { GatewayServer } from './server.ts';
import { SingleFlight } from '../driver/single-flight.ts';

export interface GatewayOptions extends Omit<DriverConnectionOptions, 'address' | 'metrics'> {
  /** The driver's socket. */
  readonly driver: Address;
  readonly maxRequestBytes: number;
  readonly listen: Address;
  readonly alsoListen?: readonly Address[];
  /** For listeners on TCP; plaintext if absent. */
  readonly tls?: ListenerTls | undefined;
  /** Whether plaintext TCP beyond loopback is allowed. */
  readonly insecure?: boolean;
  /** No limit if absent. */
  readonly maxInFlight?: MaxInFlight;
  /** UID of the pod that it is in. */
  readonly pod?: string;
  /** Whether every method of CSI passes, and not only defaultMethods. */
  readonly allowAll: boolean;
  /** Whether to log each call with its messages, without secrets. */
  readonly logMessages: boolean;
  readonly metrics: Registry;
}

export type Gateway = Awaited<ReturnType<typeof startGateway>>;

/** Starts a gateway. Does not wait for the driver.
 * @throws UsageError if it can't listen */
export async function startGateway(options: GatewayOptions) {
  // grpc-js would print values of metadata to standard error.
  setLogVerbosity(logVerbosity.NONE);
  const { clock, log, maxMessageBytes, maxRequestBytes } = options;
  const metrics = createGatewayMetrics(options.metrics, (name) => inTreeNameOf(name) !== undefined);
  const driver = new DriverConnection({ ...options, address: options.driver, metrics });
  const forwarder = new Forwarder({
    driver,
    allowed: options.allowAll ? undefined : defaultMethods,
    flights: new SingleFlight(),
    pod: options.pod ?? '',
    limiter: new CallLimiter(
      options.maxInFlight ?? { every: Infinity, byPath: new Map() },
      (count) => metrics.setWaiting(count),
    ),
    clock,
    log,
    // Imported on demand: only this log needs the protobuf descriptors.
    logCall: options.logMessages ? (await import('./log-call.ts')).logCall : undefined,
    metrics,
  });
  let isClosing = false;
  const facts = (): Metadata => {
    const metadata = new Metadata();
    metadata.set(TIME_TRAILER, String(clock.nowMs()));
    return metadata;
  };
  const server = new GatewayServer({
    addresses: [options.listen, ...(options.alsoListen ?? [])],
    tls: options.tls,
    insecure: options.insecure ?? false,
    forwarder,
    health: new HealthService(() => !isClosing && driver.trouble === undefined, facts),
    metrics,
    facts,
    maxRequestBytes,
    maxMessageBytes,
    clock,
    log,
  });
  const addresses = await server.listen();
  driver.start();
  return {
    /** The first of the addresses. */
    address: addresses[0] ?? options.listen,
    addresses,
    get trouble() {
      return driver.trouble;
    },
    /** What the driver reported about itself; undefined while that is not known. */
    get identity() {
      return driver.identity;
    },
    /** Refuses new calls, waits at most `graceMs` for those under way, and closes. */
    close: async (graceMs: number): Promise<void> => {
      isClosing = true;
      await server.drain(graceMs);
      await driver.close();
    },
  };
}
