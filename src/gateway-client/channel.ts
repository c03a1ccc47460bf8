// grpc-js channels to a gateway or a driver. Builds on credentials.ts.
import { Client, type ClientOptions, connectivityState } from '@grpc/grpc-js';
import { CANCELED_DETAILS, Code, createNotSentError, DEADLINE_DETAILS } from '../csi/status.ts';
import { type Address, formatAddress } from '../runtime/address.ts';
import { channelSecurity, type ClientTls } from './credentials.ts';

export interface ChannelTarget {
  readonly address: Address;
  /** Largest response accepted; 64 MiB if absent. */
  readonly maxReceiveBytes?: number;
  readonly tls?: ClientTls | undefined;
}

/** Creates a grpc-js client for one channel, with the certificates that are current now. It
 * connects when the first call is made. */
export function openChannel(target: ChannelTarget): Client {
  const { address, tls } = target;
  const security = channelSecurity(address, tls);
  const name = address.kind === 'unix' ? `unix:${address.path}` : formatAddress(address);
  return new Client(name, security.credentials, { ...channelOptions(target), ...security.options });
}

/** Waits until the channel is connected.
 * @param path  method path, for the error
 * @throws CsiError with notForwarded: the connection failed, the deadline passed, or the signal
 *   aborted */
export async function waitUntilConnected(
  grpc: Client,
  path: string,
  { deadlineMs, signal }: { readonly deadlineMs: number; readonly signal: AbortSignal | undefined },
): Promise<void> {
  const channel = grpc.getChannel();
  const fail = (code: number, details: string): never => {
    throw createNotSentError({ method: path, code, details });
  };
  const isAborted = (): boolean => signal?.aborted === true;
  for (;;) {
    const state = channel.getConnectivityState(true);
    if (state === connectivityState.READY) return;
    if (isAborted()) return fail(Code.Canceled, CANCELED_DETAILS);
    if (state === connectivityState.TRANSIENT_FAILURE)
      return fail(Code.Unavailable, `no connection to ${channel.getTarget()}`);
    if (state === connectivityState.SHUTDOWN) return fail(Code.Canceled, 'the client was closed');
    const hasChanged = await waitForStateChange(channel, state, { deadlineMs, signal });
    if (!hasChanged && !isAborted()) return fail(Code.DeadlineExceeded, DEADLINE_DETAILS);
  }
}

function channelOptions({ address, maxReceiveBytes }: ChannelTarget): ClientOptions {
  return {
    'grpc.max_receive_message_length': maxReceiveBytes ?? 64 * 1024 * 1024,
    'grpc.max_send_message_length': -1,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 2_000,
    // Clients of the same address must not share a connection, or its back-off and its end.
    'grpc.use_local_subchannel_pool': 1,
    // The queue retries, with a volume record. A retry inside grpc-js would be a call without one.
    'grpc.enable_retries': 0,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_http_proxy': 0,
    'grpc.enable_channelz': 0,
    // A unix socket reports a lost peer; TCP needs keepalive pings to notice.
    ...(address.kind === 'tcp'
      ? { 'grpc.keepalive_time_ms': 20_000, 'grpc.keepalive_timeout_ms': 10_000 }
      : {}),
  };
}

/** Resolves with whether the state changed before the deadline and before the signal aborted. */
function waitForStateChange(
  channel: ReturnType<Client['getChannel']>,
  from: connectivityState,
  until: { readonly deadlineMs: number; readonly signal: AbortSignal | undefined },
): Promise<boolean> {
  return new Promise((resolve) => {
    const finish = (hasChanged: boolean): void => {
      until.signal?.removeEventListener('abort', onAbort);
      resolve(hasChanged);
    };
    const onAbort = (): void => finish(false);
    until.signal?.addEventListener('abort', onAbort, { once: true });
    channel.watchConnectivityState(from, until.deadlineMs, (error) => finish(!error));
  });
}
