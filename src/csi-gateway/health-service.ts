import type { Metadata, sendUnaryData, Server, ServerUnaryCall } from '@grpc/grpc-js';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { Code } from '../csi/status.ts';
import { eachField } from '../driver/volume-keys.ts';

const SERVING = 1;
const NOT_SERVING = 2;
/** Services with a health status: the gateway as a whole, and the CSI services it forwards. */
const SERVICES = new Set(['', 'csi.v1.Identity', 'csi.v1.Controller', 'csi.v1.Node']);

/** An object, since grpc-js reads an empty text as a missing message. */
interface HealthRequest {
  readonly service: string;
}

/** Adds Check of gRPC's health service (grpc/grpc doc/health-checking.md), for gRPC probes. The
 * status is SERVING while calls can be forwarded, as in /readyz.
 *
 * Does not use the package grpc-health-check: it parses a .proto file at each start, which takes a
 * tenth of a second and 6 MB, and is missing in the bundle.
 * @param facts  trailers about the gateway itself, such as its time */
export function addHealthService(
  server: Server,
  isServing: () => boolean,
  facts: () => Metadata,
): void {
  server.register(
    '/grpc.health.v1.Health/Check',
    (
      { request: { service } }: ServerUnaryCall<HealthRequest, number>,
      answer: sendUnaryData<number>,
    ) => {
      if (SERVICES.has(service)) return answer(null, isServing() ? SERVING : NOT_SERVING, facts());
      const shown = JSON.stringify(service.slice(0, 200));
      answer({ code: Code.NotFound, details: `the health of service ${shown} is unknown` });
    },
    encodeStatus,
    decodeRequest,
    'unary',
  );
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
