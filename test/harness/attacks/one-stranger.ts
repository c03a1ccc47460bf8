import { CsiClient } from '#src/gateway-client/client.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { silentLog } from '#src/runtime/log.ts';
import { volumeRequest } from '../csi-gateway.ts';
import { until } from '../until.ts';
import { type Door, type DoorKind, openDoor } from './door.ts';
import { Stranger } from './stranger.ts';

/** A door with an allowed caller and one stranger, all in this process but the gateway. */
export interface VisitedDoor {
  readonly door: Door;
  readonly caller: CsiClient;
  /** Where the door is `tls`, from an address of its own. */
  readonly stranger: Stranger;
  close(): Promise<void>;
}

/** Opens one and waits until calls are forwarded.
 * @param flags  further flags of the gateway */
export async function openVisitedDoor(
  kind: DoorKind,
  flags: readonly string[] = [],
): Promise<VisitedDoor> {
  const door = await openDoor(kind, flags);
  const caller = connectCaller(door);
  const isServed = (): Promise<boolean> =>
    caller.createVolume(volumeRequest('ready'), { timeoutMs: 5_000 }).then(
      () => true,
      () => false,
    );
  await until(isServed, 'the gateway forwards calls');
  const end = new AbortController();
  const stranger = new Stranger({
    target: door.target,
    localAddress: kind === 'tls' ? '127.0.0.2' : undefined,
    maxSockets: 2_000,
    signal: end.signal,
  });
  return {
    door,
    caller,
    stranger,
    close: async () => {
      end.abort();
      caller.close();
      await door.closers.close();
    },
  };
}

/** A client of a gateway that has a certificate with an allowed name, if the door asks for one. */
function connectCaller({ gateway, callerTls }: Door): CsiClient {
  const source = callerTls && { current: callerTls, onChange: () => () => undefined };
  return new CsiClient({
    address: parseAddress('gateway', gateway.address),
    log: silentLog,
    tls: source && { source, serverName: '' },
  });
}
