import { CsiClient } from '#src/gateway-client/client.ts';
import { CsiError } from '#src/csi/status.ts';
import { Gateway, type GatewayOptions } from '#src/csi-gateway/server.ts';
import type { Address } from '#src/runtime/address.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';

/** Starts a gateway that forwards from `gw.sock` to `csi.sock` in a folder, and a client of it. */
export async function startTestGateway(
  folder: { file(name: string): string },
  options: Partial<Omit<GatewayOptions, 'listen'>> & {
    readonly listen?: Address | readonly Address[];
  } = {},
): Promise<{
  readonly gateway: Gateway;
  /** Where it listens. */
  readonly addresses: readonly Address[];
  /** The first of them. */
  readonly address: Address;
  readonly client: CsiClient;
  readonly metrics: Registry;
  close(): Promise<void>;
}> {
  const metrics = new Registry();
  const listen = [
    options.listen ?? ({ kind: 'unix', path: folder.file('gw.sock') } as const),
  ].flat();
  const gateway = new Gateway({
    driver: { kind: 'unix', path: folder.file('csi.sock') },
    allowAll: false,
    maxInFlight: 500,
    probeTimeoutMs: 1_000,
    maxMessageBytes: 64 * 1024 * 1024,
    maxRequestBytes: 4 * 1024 * 1024,
    logsMessages: false,
    clock: systemClock,
    log: silentLog,
    metrics,
    ...options,
    listen,
  });
  const addresses = await gateway.start();
  const [address] = addresses;
  if (address === undefined) throw new Error('it listens nowhere');
  const client = new CsiClient({ address });
  return {
    gateway,
    addresses,
    address,
    client,
    metrics,
    close: async () => {
      client.close();
      await gateway.close(0);
    },
  };
}

/** The CsiError with which a call fails. */
export async function failureOf(call: Promise<unknown>): Promise<CsiError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof CsiError) return error;
    throw error;
  }
  throw new Error('the call succeeded');
}

/** Who made the status of an error, as far as its caller can tell. */
export function verdict(error: CsiError): 'driver' | 'not-forwarded' | 'ambiguous' {
  return error.driverSaid ? 'driver' : error.notForwarded ? 'not-forwarded' : 'ambiguous';
}

/** A CreateVolume request that the sample driver accepts. */
export function volumeRequest(name: string): {
  name: string;
  volumeCapabilities: { accessType: { case: 'mount'; value: object }; accessMode: { mode: 1 } }[];
} {
  return {
    name,
    volumeCapabilities: [{ accessType: { case: 'mount', value: {} }, accessMode: { mode: 1 } }],
  };
}
