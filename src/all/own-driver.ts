import { hostname } from 'node:os';
import { CsiCalls, type SendCall } from '../csi/csi-calls.ts';
import { Code, CsiError } from '../csi/status.ts';
import { DriverCalls } from '../driver/driver-calls.ts';
import { DriverConnection } from '../driver/driver-connection.ts';
import { createDriverMetrics } from '../driver/metrics.ts';
import { type DriverAccess, watchDriver } from '../gateway-client/open-driver.ts';
import { GatewayPool } from '../gateway-client/pool.ts';
import { formatAddress, parseAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import type { FlagTable } from '../runtime/flags.ts';
import type { ProcessContext } from '../runtime/process.ts';

interface Context extends Pick<
  ProcessContext<FlagTable>,
  'closers' | 'health' | 'log' | 'metrics'
> {
  readonly flags: {
    readonly csiAddress: string;
    readonly maxInFlight: number;
    readonly maxMessageBytes: number;
    readonly showMessagesWithShortSecrets: boolean;
    readonly timeoutMs: number;
    readonly v: number;
  };
}

/** Opens the driver at this process's socket, without a gateway. Does not wait for the driver.
 * @returns access to the driver, and the address of its socket */
export function openOwnDriver({ flags, closers, health, log, metrics: registry }: Context): {
  readonly access: DriverAccess;
  readonly address: string;
} {
  const address = parseAddress('csi-address', flags.csiAddress);
  const metrics = createDriverMetrics(registry);
  const { maxMessageBytes, maxInFlight, timeoutMs } = flags;
  const options = { clock: systemClock, log, metrics };
  const driver = new DriverConnection({
    ...options,
    address,
    maxMessageBytes,
    probeTimeoutMs: timeoutMs,
    // The watch would ask again up to 100 ms later.
    onReady: () => access.driver.askNow(),
  });
  const calls = new DriverCalls({ ...options, driver, maxInFlight, logsMessages: flags.v >= 5 });
  closers.add('driver', () => driver.close());
  health.ready('driver', () => driver.trouble);
  const showsShortSecrets = flags.showMessagesWithShortSecrets;
  const csi = new CsiCalls(sendBy(calls), { clock: systemClock, showsShortSecrets });
  const own = { address: `own:${hostname()}`, client: csi };
  const remedy = 'that process; this one only calls its own driver';
  const access = watchDriver(
    { flags, closers, log },
    new GatewayPool(() => [own], own.address, remedy),
    '',
  );
  driver.start();
  return { access, address: formatAddress(address) };
}

function sendBy(calls: DriverCalls): SendCall {
  return async ({ path, message, deadlineMs, settings }) => {
    const { metadata = {}, migrated = false, notAfterMs = Infinity, signal } = settings;
    const when = { deadlineMs, notAfterMs, signal };
    const call = { path, message, headers: metadata, migrated, caller: 'this process', ...when };
    const reply = await calls.send(call);
    const { code, details, kind } = reply;
    if (kind === 'driver' && code === Code.OK) return reply.message;
    throw new CsiError({
      code,
      details,
      method: path,
      driverSaid: kind === 'driver',
      notForwarded: kind === 'not-forwarded',
      isGatewayFull: kind === 'not-forwarded' && reply.reason === 'max-in-flight',
    });
  };
}
