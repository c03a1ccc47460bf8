import { logVerbosity, setLogVerbosity } from '@grpc/grpc-js';
import type { Registry } from 'prom-client';
import type { Address } from '../runtime/address.ts';
import { DriverCalls } from '../driver/driver-calls.ts';
import { DriverConnection, type DriverConnectionOptions } from '../driver/driver-connection.ts';
import type { AdmissionRules } from './admission.ts';
import type { ListenerTls } from './listener.ts';
import { createDriverMetrics } from '../driver/metrics.ts';
import { GatewayServer } from './server.ts';

export interface GatewayOptions
  extends Omit<DriverConnectionOptions, 'address' | 'metrics'>, AdmissionRules {
  /** The driver's socket. */
  readonly driver: Address;
  readonly listen: readonly Address[];
  /** For listeners on TCP; plaintext if absent. */
  readonly tls?: ListenerTls | undefined;
  /** Whether plaintext TCP beyond loopback is allowed. */
  readonly insecure?: boolean;
  /** Calls at the driver at once, but for Identity's. */
  readonly maxInFlight: number;
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
  const metrics = createDriverMetrics(options.metrics);
  const driver = new DriverConnection({ ...options, address: options.driver, metrics });
  const calls = new DriverCalls({ ...options, driver, logsMessages: options.logMessages, metrics });
  const server = new GatewayServer(options, driver, calls, metrics);
  const addresses = await server.listen();
  driver.start();
  return {
    addresses,
    get trouble() {
      return driver.trouble;
    },
    /** Refuses new calls, waits at most `graceMs` for those under way, and closes. */
    close: async (graceMs: number): Promise<void> => {
      await server.drain(graceMs);
      await driver.close();
    },
  };
}
