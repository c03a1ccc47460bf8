import { systemClock } from '../runtime/clock.ts';
import type { Flags } from '../runtime/flags.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/log.ts';
import { watchDriver, type DriverWatch } from './driver-watch.ts';
import type { gatewayClientFlags } from './flags.ts';
import { openGatewaySecurity } from './credentials.ts';
import { openGatewayPool, type GatewayPool } from './pool.ts';

/** The ways to the driver of a process, by its flags, and a watch over what the driver is; closed
 * with the process. Waits for nothing.
 * @throws UsageError for TLS files that can't be used and addresses that can't be called */
export async function openDriver(p: {
  readonly flags: Flags<typeof gatewayClientFlags>;
  readonly closers: Closers;
  readonly log: Logger;
}): Promise<{ readonly gateways: GatewayPool; readonly driver: DriverWatch }> {
  const { flags, closers, log } = p;
  const security = await openGatewaySecurity(flags, { clock: systemClock, log });
  closers.add('gateway TLS files', () => security.close());
  const gateways = openGatewayPool({ addresses: flags.gateway, security, log });
  closers.add('gateway clients', () => gateways.close());
  const driver = watchDriver({ gateways, timeoutMs: flags.timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, driver };
}
