import { type CallSettings, CsiCalls, type EncodedCall } from '../csi/csi-calls.ts';
import { getSingle, type HeaderPairs } from '../csi/grpc-wire.ts';
import {
  CANCELED_DETAILS,
  Code,
  createNotSentError,
  CsiError,
  DEADLINE_DETAILS,
  DRAINING_TRAILER,
  DRIVER_STATUS_TRAILER,
  FULL_TRAILER,
  MIGRATED_METADATA,
  NOT_AFTER_METADATA,
  NOT_FORWARDED_TRAILER,
  tooLateDetails,
} from '../csi/status.ts';
import type { UnaryAnswer } from '../csi/unary-call.ts';
import { type Clock, signalWithin, systemClock } from '../runtime/clock.ts';
import { Channel, type ChannelOptions } from './channel.ts';

/** The address of a gateway, or of a driver's socket. Without a gateway every failure is ambiguous,
 * because nothing confirms who made the status. */
export interface CsiClientOptions extends Omit<ChannelOptions, 'clock'> {
  readonly clock?: Clock;
  /** See CsiCalls. */
  readonly showsShortSecrets?: boolean;
}

/** Calls through one gateway. Connects at the first call, or up to 2 s after a socket appears. */
export class CsiClient extends CsiCalls {
  readonly #channel: Channel;

  constructor(options: CsiClientOptions) {
    const { clock = systemClock, showsShortSecrets = false } = options;
    const channel = new Channel({ ...options, clock });
    super((call) => sendCall(channel, clock, call), { clock, showsShortSecrets });
    this.#channel = channel;
  }

  /** Closes the connection after the calls under way. */
  retire(): void {
    this.#channel.retire();
  }

  /** Closes the connection; calls under way end as ambiguous. */
  close(): void {
    this.#channel.close();
  }
}

/** Sends a call to a gateway. Reads from its answer who made the status.
 * @throws CsiError */
async function sendCall(channel: Channel, clock: Clock, call: EncodedCall): Promise<Uint8Array> {
  const { path, message, deadlineMs, settings } = call;
  const { signal, notAfterMs = Infinity } = settings;
  const trouble = channel.isConnected
    ? undefined
    : await channel.connect(signalWithin(signal, deadlineMs - clock.nowMs()));
  const fail = (code: number, details: string): never => {
    throw createNotSentError({ method: path, code, details });
  };
  if (signal?.aborted === true) return fail(Code.Canceled, CANCELED_DETAILS);
  const nowMs = clock.nowMs();
  const timeoutMs = deadlineMs - nowMs;
  if (timeoutMs <= 0) return fail(Code.DeadlineExceeded, DEADLINE_DETAILS);
  if (nowMs > notAfterMs) return fail(Code.Aborted, tooLateDetails(nowMs - notAfterMs));
  if (trouble !== undefined) return fail(Code.Unavailable, trouble);
  const headers = toHeaders(settings, channel.aheadMs);
  if (headers === undefined)
    return fail(Code.InvalidArgument, 'not sent: gRPC forbids a key or value in its metadata');
  const answer = await channel.send({ path, headers, message, timeoutMs, signal });
  if (answer.kind === 'answered' && answer.code === Code.OK) return answer.message;
  throw toError(answer, path, clock.nowMs() >= deadlineMs);
}

/** Makes the error of an answer that is no success. If our own deadline has passed, uses Go's text,
 * which upstream's events show. */
function toError(answer: UnaryAnswer, method: string, isOver: boolean): CsiError {
  const { kind, code } = answer;
  const details = code === Code.DeadlineExceeded && isOver ? DEADLINE_DETAILS : answer.details;
  if (kind === 'not-sent') return createNotSentError({ method, code, details });
  const said = kind === 'answered' ? readVerdict(answer.trailers) : {};
  return new CsiError({ code, details, ...said, method });
}

/** Makes the headers of a request; undefined if its metadata can't be sent.
 * @param aheadMs  how far the gateway's clock is ahead */
function toHeaders(
  { metadata, migrated, notAfterMs }: CallSettings,
  aheadMs: number,
): Record<string, string> | undefined {
  const headers: Record<string, string> = {};
  for (const [key, value] of Object.entries(metadata ?? {})) {
    if (!/^[0-9a-z_.-]+$/.test(key) || !/^[\x20-\x7e]*$/.test(value)) return undefined;
    headers[key] = value;
  }
  if (migrated !== undefined) headers[MIGRATED_METADATA] = String(migrated);
  if (notAfterMs !== undefined)
    headers[NOT_AFTER_METADATA] = String(Math.floor(notAfterMs + aheadMs));
  return headers;
}

/** Reads what the gateway says about the status. A driver can't forge it, since the gateway removes
 * the driver's `sutler-*` trailers. */
function readVerdict(
  trailers: HeaderPairs,
): Pick<CsiError, 'driverSaid' | 'notForwarded' | 'isGatewayFull' | 'draining'> {
  const draining = getSingle(trailers, DRAINING_TRAILER);
  const isCount = draining !== undefined && /^\d{1,9}$/.test(draining);
  return {
    driverSaid: getSingle(trailers, DRIVER_STATUS_TRAILER) === '1',
    notForwarded: getSingle(trailers, NOT_FORWARDED_TRAILER) === '1',
    isGatewayFull: getSingle(trailers, FULL_TRAILER) === '1',
    draining: isCount ? Number(draining) : undefined,
  };
}
