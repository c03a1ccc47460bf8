import type {
  Metadata,
  sendUnaryData,
  Server,
  ServerUnaryCall,
  ServerWritableStream,
} from '@grpc/grpc-js';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { Code } from '../csi/status.ts';
import { eachField } from '../driver/volume-keys.ts';

const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE_UNKNOWN = 3;
/** Services with a health status: the gateway as a whole, and the CSI services it forwards. */
const SERVICES = new Set(['', 'csi.v1.Identity', 'csi.v1.Controller', 'csi.v1.Node']);

/** An object, since grpc-js takes an empty text for an absent message. */
interface HealthRequest {
  readonly service: string;
}
type Watch = ServerWritableStream<HealthRequest, number>;

/** The health service of gRPC (grpc/grpc doc/health-checking.md), for probes that speak gRPC. The
 * status is SERVING while calls can be forwarded, as in /readyz.
 *
 * The package grpc-health-check would parse a .proto file at each start, which takes a tenth of a
 * second and 6 MB, and the bundle does not contain that file. */
export class HealthService {
  readonly #isServing: () => boolean;
  readonly #facts: () => Metadata;
  readonly #watches = new Map<Watch, number>();

  /** @param facts  trailers by which the gateway says something of itself, such as its time */
  constructor(isServing: () => boolean, facts: () => Metadata) {
    this.#isServing = isServing;
    this.#facts = facts;
  }

  addTo(server: Server): void {
    const path = '/grpc.health.v1.Health';
    server.register(
      `${path}/Check`,
      (
        { request: { service } }: ServerUnaryCall<HealthRequest, number>,
        answer: sendUnaryData<number>,
      ) => {
        if (SERVICES.has(service)) return answer(null, this.#statusOf(service), this.#facts());
        const shown = JSON.stringify(service.slice(0, 200));
        answer({ code: Code.NotFound, details: `the health of service ${shown} is unknown` });
      },
      encodeStatus,
      decodeRequest,
      'unary',
    );
    server.register(
      `${path}/Watch`,
      (call: Watch) => this.#watch(call),
      encodeStatus,
      decodeRequest,
      'serverStream',
    );
  }

  /** Sends watchers the status, where it has changed. */
  notify(): void {
    for (const [call, last] of this.#watches) {
      const status = this.#statusOf(call.request.service);
      if (status === last) continue;
      this.#watches.set(call, status);
      call.write(status);
    }
  }

  /** Sends watchers the last change of the status and ends their streams. */
  close(): void {
    this.notify();
    const details = 'the gateway is shutting down';
    for (const call of this.#watches.keys())
      call.emit('error', { code: Code.Unavailable, details });
  }

  /** Stays open and sends each change of the status. */
  #watch(call: Watch): void {
    const status = this.#statusOf(call.request.service);
    call.write(status);
    this.#watches.set(call, status);
    call.on('cancelled', () => this.#watches.delete(call));
  }

  #statusOf(service: string): number {
    if (!SERVICES.has(service)) return SERVICE_UNKNOWN;
    return this.#isServing() ? SERVING : NOT_SERVING;
  }
}

/** @throws Error if the bytes are no HealthCheckRequest */
function decodeRequest(request: Buffer): HealthRequest {
  let service = '';
  eachField(request, 1, WireType.LengthDelimited, (reader) => (service = reader.string()));
  return { service };
}

function encodeStatus(status: number): Buffer {
  return Buffer.from(new BinaryWriter().tag(1, WireType.Varint).int32(status).finish());
}
