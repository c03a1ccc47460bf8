import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import { type Clock, timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { Controller, Identity } from './generated/csi_pb.ts';
import { methodPath } from './methods.ts';
import { redactError } from './redact-secrets.ts';
import { Code, createNotSentError, CsiError } from './status.ts';

/** Settings of one call. */
export interface CallSettings {
  /** Time for the whole call, including the wait for a connection. Also the driver's deadline. */
  readonly timeoutMs: number;
  /** Unix ms, by this process's clock, after which the call must not reach the driver
   * (docs/leak-proof.md, M2). Before that, a call that a full gateway refuses is repeated. */
  readonly notAfterMs?: number;
  /** Cancels the call. It ends as Canceled, and ambiguous unless it was not sent yet. */
  readonly signal?: AbortSignal;
  /** Whether the volume comes from an in-tree plug-in; a label of metrics. */
  readonly migrated?: boolean;
  /** Further request metadata. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** A call with its encoded request. */
export interface EncodedCall {
  readonly path: string;
  readonly message: Uint8Array;
  /** Unix ms, by this process's clock. */
  readonly deadlineMs: number;
  readonly settings: CallSettings;
}

/** Sends a call to a driver, directly or through a gateway.
 * @returns the encoded answer
 * @throws CsiError, which says who made the status. Its text may contain secrets of the request */
export type SendCall = (call: EncodedCall) => Promise<Uint8Array>;

/** A request: a message, its fields, or encoded. */
type RequestOf<I extends DescMessage> = MessageInitShape<I> | Uint8Array;

/** Average pause between two attempts at a call that a full gateway refuses. */
const FULL_PAUSE_MS = 500;

/** Calls one driver. Rejects only with CsiError, whose text contains no secret of the request. */
export class CsiCalls {
  readonly probe = this.#query(Identity.method.probe);
  readonly getPluginInfo = this.#query(Identity.method.getPluginInfo);
  readonly getPluginCapabilities = this.#query(Identity.method.getPluginCapabilities);
  readonly controllerGetCapabilities = this.#query(Controller.method.controllerGetCapabilities);
  readonly createVolume = this.#method(Controller.method.createVolume);
  readonly deleteVolume = this.#method(Controller.method.deleteVolume);
  readonly getCapacity = this.#method(Controller.method.getCapacity);
  readonly listVolumes = this.#method(Controller.method.listVolumes);
  readonly #send: SendCall;
  readonly #clock: Clock;
  readonly #showsShortSecrets: boolean;

  /** @param o.showsShortSecrets  whether an error shows the driver's text if a secret of the call
   *   is too short to be removed from it */
  constructor(send: SendCall, o: { readonly clock: Clock; readonly showsShortSecrets: boolean }) {
    this.#send = send;
    this.#clock = o.clock;
    this.#showsShortSecrets = o.showsShortSecrets;
  }

  /** @returns a function that calls the method */
  #method<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
  ): (request: RequestOf<I>, settings: CallSettings) => Promise<MessageShape<O>> {
    return (request, settings) => this.call(method, request, settings);
  }

  /** @returns a function that calls the method with an empty request */
  #query<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
  ): (settings: CallSettings) => Promise<MessageShape<O>> {
    return (settings) => this.call(method, new Uint8Array(0), settings);
  }

  /** Calls any unary method. */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    values: RequestOf<I>,
    settings: CallSettings,
  ): Promise<MessageShape<O>> {
    const path = methodPath(method);
    const message = encodeRequest(method, values);
    try {
      const answer = await this.#sendWhileFull({ path, message, settings });
      return decodeResponse(method.output, answer, path);
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      const sent = { schema: method.input, request: message };
      throw redactError(error, sent, { showsShort: this.#showsShortSecrets });
    }
  }

  /** Sends a call. Repeats it while the gateway is full and the call may still be sent, so that
   * only this call waits and not the queue. */
  async #sendWhileFull(call: Omit<EncodedCall, 'deadlineMs'>): Promise<Uint8Array> {
    const { timeoutMs, notAfterMs = 0, signal } = call.settings;
    for (;;) {
      // Limited, since the deadline becomes a timer.
      const deadlineMs = this.#clock.nowMs() + timerMs(timeoutMs);
      try {
        return await this.#send({ ...call, deadlineMs });
      } catch (error) {
        const pauseMs = FULL_PAUSE_MS * (0.5 + Math.random());
        const isFull = error instanceof CsiError && error.isGatewayFull;
        if (!isFull || this.#clock.nowMs() + 2 * FULL_PAUSE_MS > notAfterMs) throw error;
        await this.#clock.sleep(pauseMs, signal);
      }
    }
  }
}

function encodeRequest<I extends DescMessage>(
  method: DescMethodUnary<I>,
  request: RequestOf<I>,
): Uint8Array {
  if (request instanceof Uint8Array) return request;
  try {
    return toBinary(method.input, create(method.input, request));
  } catch (cause) {
    const details = `the request can't be encoded: ${messageOf(cause)}`;
    throw createNotSentError(
      { method: methodPath(method), code: Code.InvalidArgument, details },
      cause,
    );
  }
}

function decodeResponse<O extends DescMessage>(
  schema: O,
  response: Uint8Array,
  path: string,
): MessageShape<O> {
  try {
    return fromBinary(schema, response);
  } catch (cause) {
    const details = `the response to ${path} can't be decoded: ${messageOf(cause)}`;
    throw new CsiError({ code: Code.Internal, details, method: path }, { cause });
  }
}
