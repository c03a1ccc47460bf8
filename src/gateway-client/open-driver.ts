// How ingest, jobs and audit reach their driver. Builds on all other files of this folder.
import { systemClock } from '../runtime/clock.ts';
import type { Flags } from '../runtime/flags.ts';
import type { Closers } from '../runtime/closers.ts';
import type { Logger } from '../runtime/log.ts';
import { openGatewaySecurity } from './credentials.ts';
import { DriverWatch } from './driver-watch.ts';
import type { gatewayClientFlags } from './flags.ts';
import { type GatewayPool, openGatewayPool } from './pool.ts';

/** Opens the gateways that the flags name and starts watching the driver behind them. Does not wait
 * for a connection. Both are closed with the process.
 * @throws UsageError for TLS files that can't be used and for addresses that must not be called */
export async function openDriver(context: {
  readonly flags: Flags<typeof gatewayClientFlags>;
  readonly closers: Closers;
  readonly log: Logger;
}): Promise<{ readonly gateways: GatewayPool; readonly driver: DriverWatch }> {
  const { flags, closers, log } = context;
  const security = await openGatewaySecurity(flags, { clock: systemClock, log });
  closers.add('gateway TLS files', () => security.close());
  const gateways = openGatewayPool({
    addresses: flags.gateway,
    security,
    showsShortSecrets: flags.showMessagesWithShortSecrets,
    log,
  });
  closers.add('gateway clients', () => gateways.close());
  const driver = new DriverWatch({ gateways, timeoutMs: flags.timeoutMs, clock: systemClock, log });
  closers.add('driver watch', () => driver.close());
  return { gateways, driver };
}
