import { Client, connectivityState, type ClientOptions } from '@grpc/grpc-js';
import { formatAddress, type Address } from '../runtime/address.ts';
import { channelSecurity, type ClientTls } from './credentials.ts';
import { CANCELED_DETAILS, Code, DEADLINE_DETAILS, notSent } from '../csi/status.ts';

export interface ChannelTarget {
  readonly address: Address;
  /** Largest answer taken; 64 MiB where absent. */
  readonly maxReceiveBytes?: number;
  readonly tls?: ClientTls;
}

/** A channel of grpc-js with the certificates of this moment; dialled by the first call. */
export function openChannel(target: ChannelTarget): Client {
  const { address, tls } = target;
  const security = channelSecurity(address, tls);
  const name = address.kind === 'unix' ? `unix:${address.path}` : formatAddress(address);
  return new Client(name, security.credentials, { ...channelOptions(target), ...security.options });
}

/** Waits until the channel can take a call.
 * @throws CsiError notForwarded: nothing listens there, or time or patience ran out first */
export async function waitUntilConnected(
  grpc: Client,
  path: string,
  { deadlineMs, signal }: { readonly deadlineMs: number; readonly signal: AbortSignal | undefined },
): Promise<void> {
  const channel = grpc.getChannel();
  const gaveUp = (): boolean => signal?.aborted === true;
  for (;;) {
    const state = channel.getConnectivityState(true);
    if (state === connectivityState.READY) return;
    if (gaveUp()) throw notSent(path, Code.Canceled, CANCELED_DETAILS);
    if (state === connectivityState.TRANSIENT_FAILURE)
      throw notSent(path, Code.Unavailable, `no connection to ${channel.getTarget()}`);
    if (state === connectivityState.SHUTDOWN)
      throw notSent(path, Code.Canceled, 'the client was closed');
    const changed = await stateChange(channel, state, {
      deadlineMs,
      ...(signal ? { signal } : {}),
    });
    if (!changed && !gaveUp()) throw notSent(path, Code.DeadlineExceeded, DEADLINE_DETAILS);
  }
}

function channelOptions({ address, maxReceiveBytes }: ChannelTarget): ClientOptions {
  return {
    'grpc.max_receive_message_length': maxReceiveBytes ?? 64 * 1024 * 1024,
    'grpc.max_send_message_length': -1,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 2_000,
    // Own connection: another client to the same address must not share its backoff or its end.
    'grpc.use_local_subchannel_pool': 1,
    // Retries are the queue's business, with a record; a silent second attempt would be a call
    // nobody accounts for.
    'grpc.enable_retries': 0,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_http_proxy': 0,
    'grpc.enable_channelz': 0,
    // A unix socket tells when its peer is gone; TCP needs asking.
    ...(address.kind === 'tcp'
      ? { 'grpc.keepalive_time_ms': 20_000, 'grpc.keepalive_timeout_ms': 10_000 }
      : {}),
  };
}

function stateChange(
  channel: ReturnType<Client['getChannel']>,
  from: connectivityState,
  until: { readonly deadlineMs: number; readonly signal?: AbortSignal },
): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (changed: boolean): void => {
      until.signal?.removeEventListener('abort', aborted);
      resolve(changed);
    };
    const aborted = (): void => settle(false);
    until.signal?.addEventListener('abort', aborted, { once: true });
    channel.watchConnectivityState(from, until.deadlineMs, (error) =>
      settle(error === undefined || error === null),
    );
  });
}
