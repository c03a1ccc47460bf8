import {
  create,
  fromBinary,
  toBinary,
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from '@bufbuild/protobuf';
import {
  connectivityState,
  Metadata,
  type Client,
  type ClientUnaryCall,
  type ServiceError,
  type StatusObject,
} from '@grpc/grpc-js';
import type { Address } from '../runtime/address.ts';
import { systemClock, timerMs, type Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { waitUntilConnected, openChannel } from './channel.ts';
import type { ClientTls } from './credentials.ts';
import { Controller, Identity, Node } from '../csi/generated/csi_pb.ts';
import type * as csi from '../csi/generated/csi_pb.ts';
import { methodPath } from '../csi/methods.ts';
import {
  CANCELED_DETAILS,
  Code,
  CsiError,
  DEADLINE_DETAILS,
  DRAINING_TRAILER,
  DRIVER_STATUS_TRAILER,
  MIGRATED_METADATA,
  NOT_AFTER_METADATA,
  NOT_FORWARDED_TRAILER,
  notSent,
} from '../csi/status.ts';

/** How one call is made. */
export interface CallSettings {
  /** Budget of the whole call, the wait for a connection included; also the driver's deadline. */
  readonly timeoutMs: number;
  /** Absolute Unix time past which the call must not reach the driver; checked here and, again, by
   * the gateway. */
  readonly notAfterMs?: number;
  /** Gives up: the call ends as Canceled, ambiguous unless it was not sent yet. */
  readonly signal?: AbortSignal;
  /** The volume is stored in the form of an in-tree plug-in: metrics tell such calls apart (spec 07
   * §1). */
  readonly migrated?: boolean;
  /** Further request metadata. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Hears, before the promise settles, whether a gateway vouches for the answer (OK answers
   * included). */
  readonly onTrailers?: (trailers: {
    readonly driverSaid: boolean;
    readonly notForwarded: boolean;
  }) => unknown;
}

/** A request as message, as its initial values, or already encoded. */
export type RequestOf<I extends DescMessage> = MessageInitShape<I> | Uint8Array;

/** One channel to a gateway or a driver. Every call throws CsiError and nothing else. */
export interface CsiClient {
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: RequestOf<I>,
    settings: CallSettings,
  ): Promise<MessageShape<O>>;
  probe(settings: CallSettings): Promise<csi.ProbeResponse>;
  getPluginInfo(settings: CallSettings): Promise<csi.GetPluginInfoResponse>;
  getPluginCapabilities(settings: CallSettings): Promise<csi.GetPluginCapabilitiesResponse>;
  controllerGetCapabilities(settings: CallSettings): Promise<csi.ControllerGetCapabilitiesResponse>;
  nodeGetInfo(settings: CallSettings): Promise<csi.NodeGetInfoResponse>;
  createVolume(
    request: RequestOf<typeof csi.CreateVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.CreateVolumeResponse>;
  deleteVolume(
    request: RequestOf<typeof csi.DeleteVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.DeleteVolumeResponse>;
  getCapacity(
    request: RequestOf<typeof csi.GetCapacityRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.GetCapacityResponse>;
  listVolumes(
    request: RequestOf<typeof csi.ListVolumesRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.ListVolumesResponse>;
  controllerGetVolume(
    request: RequestOf<typeof csi.ControllerGetVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.ControllerGetVolumeResponse>;
  controllerModifyVolume(
    request: RequestOf<typeof csi.ControllerModifyVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.ControllerModifyVolumeResponse>;
  /** Ends the channel; calls under way end as Canceled. */
  close(): void;
}

export interface CsiClientOptions {
  /** A gateway's listener, or a driver's socket: then every failure is ambiguous, since nobody
   * vouches for it. */
  readonly address: Address;
  readonly log: Logger;
  /** Largest answer taken; 64 MiB where absent (gRPC's own default of 4 MiB is too small for
   * ListVolumes). */
  readonly maxReceiveBytes?: number;
  readonly clock?: Clock;
  /** Mutual TLS where the address is TCP; plaintext where absent. */
  readonly tls?: ClientTls;
}

/** Makes a client; nothing is dialled before the first call, and a socket that comes late is found
 * within about 2 s. */
export function createCsiClient(options: CsiClientOptions): CsiClient {
  return new GrpcCsiClient(options);
}

class GrpcCsiClient implements CsiClient {
  readonly #options: CsiClientOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #forgetTls: (() => void) | undefined;
  #grpc: Client;
  /** Calls under way by channel: one that was replaced lives until they have ended. */
  readonly #running = new Map<Client, number>();

  constructor(options: CsiClientOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#clock = options.clock ?? systemClock;
    this.#grpc = openChannel(this.#options);
    this.#forgetTls = options.tls?.source.onChange(() => this.#replaceChannel());
  }

  /** New certificates: new calls go by a new channel, those under way end on the old one. */
  #replaceChannel(): void {
    const old = this.#grpc;
    this.#grpc = openChannel(this.#options);
    if (!this.#running.has(old)) old.close();
  }

  #left(grpc: Client): void {
    const running = (this.#running.get(grpc) ?? 1) - 1;
    if (running > 0) return void this.#running.set(grpc, running);
    this.#running.delete(grpc);
    if (grpc !== this.#grpc) grpc.close();
  }

  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: RequestOf<I>,
    settings: CallSettings,
  ): Promise<MessageShape<O>> {
    const path = methodPath(method);
    const startedMs = this.#clock.nowMs();
    // grpc-js sets a timer for it.
    const deadlineMs = startedMs + timerMs(settings.timeoutMs);
    const encoded = encode(method, request);
    const grpc = this.#grpc;
    this.#running.set(grpc, (this.#running.get(grpc) ?? 0) + 1);
    try {
      return await this.#callBy(grpc, encoded, { method, path, deadlineMs, settings });
    } finally {
      this.#left(grpc);
    }
  }

  async #callBy<O extends DescMessage>(
    grpc: Client,
    encoded: Uint8Array,
    call: PreparedCall<O>,
  ): Promise<MessageShape<O>> {
    const { method, path, deadlineMs, settings } = call;
    // A call that waits for a connection inside grpc-js comes back as Unavailable with no word on
    // whether it was sent. Waiting out here keeps "nothing was sent" provable: grpc-js has not seen
    // the call yet.
    if (grpc.getChannel().getConnectivityState(true) !== connectivityState.READY)
      await waitUntilConnected(grpc, path, { deadlineMs, signal: settings.signal });
    const nowMs = this.#clock.nowMs();
    if (settings.signal?.aborted === true) throw notSent(path, Code.Canceled, CANCELED_DETAILS);
    if (nowMs >= deadlineMs) throw notSent(path, Code.DeadlineExceeded, DEADLINE_DETAILS);
    if (settings.notAfterMs !== undefined && nowMs > settings.notAfterMs) {
      throw notSent(
        path,
        Code.Aborted,
        `not sent: its sutler-not-after passed ${nowMs - settings.notAfterMs} ms ago`,
      );
    }
    const answer = await this.#send(grpc, { path, request: encoded }, { ...settings, deadlineMs });
    try {
      return fromBinary(method.output, answer);
    } catch (cause) {
      throw new CsiError(
        {
          code: Code.Internal,
          details: `the answer to ${path} does not decode: ${messageOf(cause)}`,
          method: path,
        },
        { cause },
      );
    }
  }

  #send(
    grpc: Client,
    { path, request }: { readonly path: string; readonly request: Uint8Array },
    settings: CallSettings & { readonly deadlineMs: number },
  ): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      let failure: ServiceError | null = null;
      let message: Buffer | undefined;
      const ended = (error: ServiceError | null, value?: Buffer): void => {
        failure = error;
        message = value;
      };
      let call: ClientUnaryCall;
      try {
        const options = { deadline: settings.deadlineMs };
        call = grpc.makeUnaryRequest(
          path,
          asBuffer,
          (bytes: Buffer) => bytes,
          request,
          metadataOf(settings),
          options,
          ended,
        );
      } catch (cause) {
        // Thrown before anything is sent: metadata that can't be sent, or a client that was closed
        // meanwhile.
        return reject(notSent(path, Code.InvalidArgument, messageOf(cause), cause));
      }
      const cancel = (): void => call.cancel();
      settings.signal?.addEventListener('abort', cancel, { once: true });
      // The status as it came, right after the callback: grpc-js turns OK without a message into an
      // Unimplemented of its own that still carries the trailers, and a vouched-for Unimplemented
      // would count as the driver's refusal.
      call.on('status', (status: StatusObject) => {
        settings.signal?.removeEventListener('abort', cancel);
        const trailers = {
          driverSaid: status.metadata.get(DRIVER_STATUS_TRAILER)[0] === '1',
          notForwarded: status.metadata.get(NOT_FORWARDED_TRAILER)[0] === '1',
        };
        settings.onTrailers?.(trailers);
        if (failure === null && message !== undefined) return resolve(message);
        const code: number = status.code;
        const vouched = code === Code.OK ? {} : { ...trailers, ...drainingOf(status.metadata) };
        reject(
          new CsiError(
            { ...this.#describe(failure ?? status, settings), ...vouched, method: path },
            { cause: failure },
          ),
        );
      });
    });
  }

  /** Code and words of a failed call; our own deadline and cancellation in Go's words, as
   * upstream's events have them. */
  #describe(
    status: { code: number; details: string },
    settings: CallSettings & { readonly deadlineMs: number },
  ): { code: number; details: string } {
    const { code, details } = status;
    if (code === Code.DeadlineExceeded && this.#clock.nowMs() >= settings.deadlineMs)
      return { code, details: DEADLINE_DETAILS };
    if (code === Code.Canceled && settings.signal?.aborted === true)
      return { code, details: CANCELED_DETAILS };
    return { code, details };
  }

  probe(settings: CallSettings): Promise<csi.ProbeResponse> {
    return this.call(Identity.method.probe, {}, settings);
  }
  getPluginInfo(settings: CallSettings): Promise<csi.GetPluginInfoResponse> {
    return this.call(Identity.method.getPluginInfo, {}, settings);
  }
  getPluginCapabilities(settings: CallSettings): Promise<csi.GetPluginCapabilitiesResponse> {
    return this.call(Identity.method.getPluginCapabilities, {}, settings);
  }
  controllerGetCapabilities(
    settings: CallSettings,
  ): Promise<csi.ControllerGetCapabilitiesResponse> {
    return this.call(Controller.method.controllerGetCapabilities, {}, settings);
  }
  nodeGetInfo(settings: CallSettings): Promise<csi.NodeGetInfoResponse> {
    return this.call(Node.method.nodeGetInfo, {}, settings);
  }
  createVolume(
    request: RequestOf<typeof csi.CreateVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.CreateVolumeResponse> {
    return this.call(Controller.method.createVolume, request, settings);
  }
  deleteVolume(
    request: RequestOf<typeof csi.DeleteVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.DeleteVolumeResponse> {
    return this.call(Controller.method.deleteVolume, request, settings);
  }
  getCapacity(
    request: RequestOf<typeof csi.GetCapacityRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.GetCapacityResponse> {
    return this.call(Controller.method.getCapacity, request, settings);
  }
  listVolumes(
    request: RequestOf<typeof csi.ListVolumesRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.ListVolumesResponse> {
    return this.call(Controller.method.listVolumes, request, settings);
  }
  controllerGetVolume(
    request: RequestOf<typeof csi.ControllerGetVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.ControllerGetVolumeResponse> {
    return this.call(Controller.method.controllerGetVolume, request, settings);
  }
  controllerModifyVolume(
    request: RequestOf<typeof csi.ControllerModifyVolumeRequestSchema>,
    settings: CallSettings,
  ): Promise<csi.ControllerModifyVolumeResponse> {
    return this.call(Controller.method.controllerModifyVolume, request, settings);
  }

  close(): void {
    this.#log.debug({ target: this.#grpc.getChannel().getTarget() }, 'CSI client closed');
    this.#forgetTls?.();
    for (const grpc of new Set([this.#grpc, ...this.#running.keys()])) grpc.close();
  }
}

interface PreparedCall<O extends DescMessage> {
  readonly method: { readonly output: O };
  readonly path: string;
  readonly deadlineMs: number;
  readonly settings: CallSettings;
}

function encode<I extends DescMessage>(
  method: DescMethodUnary<I>,
  request: RequestOf<I>,
): Uint8Array {
  if (request instanceof Uint8Array) return request;
  try {
    return toBinary(method.input, create(method.input, request));
  } catch (cause) {
    throw notSent(
      methodPath(method),
      Code.InvalidArgument,
      `the request can't be encoded: ${messageOf(cause)}`,
      cause,
    );
  }
}

function metadataOf(settings: CallSettings): Metadata {
  const metadata = new Metadata();
  for (const [key, value] of Object.entries(settings.metadata ?? {})) metadata.set(key, value);
  if (settings.migrated !== undefined) metadata.set(MIGRATED_METADATA, String(settings.migrated));
  if (settings.notAfterMs !== undefined)
    metadata.set(NOT_AFTER_METADATA, String(Math.floor(settings.notAfterMs)));
  return metadata;
}

/** The gateway's word, and nobody else's: it strips the driver's trailers of that kind. */
function drainingOf(metadata: Metadata): { readonly draining?: number } {
  const [text] = metadata.get(DRAINING_TRAILER);
  return typeof text === 'string' && /^\d{1,9}$/.test(text) ? { draining: Number(text) } : {};
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
