import { type CallSettings, CsiCalls, type EncodedCall } from '../csi/csi-calls.ts';
import {
  decompressMessage,
  formatTimeout,
  frameMessage,
  getSingle,
  type HeaderPairs,
} from '../csi/grpc-wire.ts';
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
import { answerLimit, type UnaryAnswer, type UnaryResponse } from '../csi/unary-call.ts';
import type { Address } from '../runtime/address.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { Channel } from './channel.ts';
import type { ClientTls } from './credentials.ts';

/** How often one call is sent at most, if connections refuse it. */
const MAX_TRIES = 3;

/** gRPC's default of 4 MiB is too small for ListVolumes. */
const MAX_RECEIVE_BYTES = 64 * 1024 * 1024;

export interface CsiClientOptions {
  /** Where a gateway listens, or a driver's socket. Without a gateway every failure is ambiguous,
   * because nothing confirms who made the status. */
  readonly address: Address;
  readonly log: Logger;
  readonly clock?: Clock;
  /** Mutual TLS for TCP addresses; plaintext if absent. */
  readonly tls?: ClientTls | undefined;
  /** Metadata of all its requests. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** See CsiCalls. */
  readonly showsShortSecrets?: boolean;
}

/** The calls by one gateway. It connects when the first call is made, and finds a socket that
 * appears later within about 2 s. */
export class CsiClient extends CsiCalls {
  readonly #channel: Channel;
  readonly #log: Logger;

  constructor(options: CsiClientOptions) {
    const { clock = systemClock, showsShortSecrets = false, metadata = {} } = options;
    const channel = new Channel({ ...options, clock, maxReceiveBytes: MAX_RECEIVE_BYTES });
    const sender = new GatewaySender(channel, clock, metadata);
    super((call) => sender.send(call), { clock, showsShortSecrets });
    this.#channel = channel;
    this.#log = options.log;
  }

  /** Ends when the calls under way have. */
  retire(): void {
    this.#channel.retire();
  }

  /** Closes the connection; calls under way end as Canceled. */
  close(): void {
    this.#log.debug({ target: this.#channel.address }, 'CSI client closed');
    this.#channel.close();
  }
}

/** Sends calls to a gateway, and reads from its answers who made the status. */
class GatewaySender {
  readonly #channel: Channel;
  readonly #clock: Clock;
  readonly #metadata: Readonly<Record<string, string>>;

  constructor(channel: Channel, clock: Clock, metadata: Readonly<Record<string, string>>) {
    this.#channel = channel;
    this.#clock = clock;
    this.#metadata = metadata;
  }

  /** Sends a call, and sends it again on a new connection if the one it was sent on refused it,
   * because it was just being closed. Such a call was not processed, but only the other side's
   * HTTP/2 says so, so every error after it is ambiguous. */
  async send(call: EncodedCall): Promise<Uint8Array> {
    for (let tries = 1; ; tries += 1)
      try {
        const answer = await this.#sendOnce(call);
        if (answer.kind === 'refused' && tries < MAX_TRIES) continue;
        return this.#readAnswer(answer, call);
      } catch (error) {
        if (tries === 1 || !(error instanceof CsiError)) throw error;
        const { code, details, method } = error;
        throw new CsiError({ code, details, method });
      }
  }

  /** @throws CsiError if it is not to be sent */
  async #sendOnce({ path, message, deadlineMs, settings }: EncodedCall): Promise<UnaryAnswer> {
    const { signal, notAfterMs = Infinity } = settings;
    const ms = deadlineMs - this.#clock.nowMs();
    if (!this.#channel.isConnected) await this.#channel.waitUntilConnected({ path, ms, signal });
    const fail = (code: number, details: string): never => {
      throw createNotSentError({ method: path, code, details });
    };
    if (signal?.aborted === true) return fail(Code.Canceled, CANCELED_DETAILS);
    const nowMs = this.#clock.nowMs();
    const timeoutMs = deadlineMs - nowMs;
    if (timeoutMs <= 0) return fail(Code.DeadlineExceeded, DEADLINE_DETAILS);
    if (nowMs > notAfterMs) return fail(Code.Aborted, tooLateDetails(nowMs - notAfterMs));
    const metadata = { ...this.#metadata, ...settings.metadata };
    const { aheadMs } = this.#channel;
    const headers = toHeaders({ ...settings, metadata }, { timeoutMs, aheadMs });
    if (headers === undefined)
      return fail(
        Code.InvalidArgument,
        'not sent: its metadata has a key or value that gRPC forbids',
      );
    return this.#channel.send({ path, headers, body: frameMessage(message), timeoutMs, signal });
  }

  /** The message of an answer.
   * @throws CsiError if there is none */
  #readAnswer(answer: UnaryAnswer, call: EncodedCall): Uint8Array {
    const { path } = call;
    if (answer.kind === 'not-sent') throw createNotSentError({ method: path, ...answer });
    if (answer.kind === 'answered' && answer.code === Code.OK) return readMessage(answer, path);
    const said = answer.kind === 'answered' ? readVerdict(answer.trailers) : {};
    throw new CsiError({ ...this.#explainFailure(answer, call), ...said, method: path });
  }

  /** Our own deadline and cancellation get Go's texts, which upstream's events show. */
  #explainFailure(
    { kind, code, details }: UnaryAnswer,
    { deadlineMs, settings }: EncodedCall,
  ): { readonly code: number; readonly details: string } {
    if (code === Code.DeadlineExceeded && this.#clock.nowMs() >= deadlineMs)
      return { code, details: DEADLINE_DETAILS };
    if (code === Code.Canceled && settings.signal?.aborted === true)
      return { code, details: CANCELED_DETAILS };
    if (kind !== 'answered' && this.#channel.isClosed)
      return { code: Code.Canceled, details: 'the client was closed' };
    return { code, details };
  }
}

function readMessage({ body, headers }: UnaryResponse, path: string): Uint8Array {
  const encoding = getSingle(headers ?? [], 'grpc-encoding');
  const maxBytes = answerLimit(path, MAX_RECEIVE_BYTES);
  const message = decompressMessage(body, encoding, maxBytes);
  if (message !== undefined) return message;
  const details =
    `the response to ${path} can't be decompressed, or has more than ${maxBytes} bytes then ` +
    `(grpc-encoding ${encoding ?? 'missing'})`;
  throw new CsiError({ code: Code.Internal, details, method: path });
}

/** The headers of a request; undefined if its metadata can't be sent.
 * @param o.aheadMs  how far the gateway's clock is ahead */
function toHeaders(
  { metadata, migrated, notAfterMs }: CallSettings,
  { timeoutMs, aheadMs }: { readonly timeoutMs: number; readonly aheadMs: number },
): Record<string, string> | undefined {
  const headers: Record<string, string> = { 'grpc-timeout': formatTimeout(timeoutMs) };
  for (const [key, value] of Object.entries(metadata ?? {})) {
    if (!/^[0-9a-z_.-]+$/.test(key) || !/^[\x20-\x7e]*$/.test(value)) return undefined;
    headers[key] = value;
  }
  if (migrated !== undefined) headers[MIGRATED_METADATA] = String(migrated);
  if (notAfterMs !== undefined)
    headers[NOT_AFTER_METADATA] = String(Math.floor(notAfterMs + aheadMs));
  return headers;
}

/** What the gateway says about the status. A driver can't forge it: the gateway removes `sutler-*`
 * trailers of the driver. */
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
