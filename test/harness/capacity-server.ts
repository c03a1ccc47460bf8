import { readFileSync } from 'node:fs';
import { create, toBinary } from '@bufbuild/protobuf';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { Controller, GetCapacityResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { methodPath } from '#src/csi/methods.ts';

/* A program: a server with mutual TLS on all addresses of this machine, which answers GetCapacity.
 * It stands for the gateways of many nodes, each at another address of 127.0.0.0/8. Its arguments
 * are the files of the authority, its certificate and its key; it sends its port to its parent. */
const [ca, cert, key] = process.argv.slice(2).map((file) => readFileSync(file));
if (ca === undefined || cert === undefined || key === undefined) throw new Error('three files');
const answer = Buffer.from(
  toBinary(GetCapacityResponseSchema, create(GetCapacityResponseSchema, { availableCapacity: 5n })),
);
const server = new Server();
const path = methodPath(Controller.method.getCapacity);
server.addService(
  {
    getCapacity: {
      path,
      requestStream: false,
      responseStream: false,
      requestSerialize: (bytes: Buffer) => bytes,
      requestDeserialize: (bytes: Buffer) => bytes,
      responseSerialize: (bytes: Buffer) => bytes,
      responseDeserialize: (bytes: Buffer) => bytes,
    },
  },
  {
    getCapacity: (_call: unknown, reply: (error: null, bytes: Buffer) => void) =>
      reply(null, answer),
  },
);
const credentials = ServerCredentials.createSsl(ca, [{ cert_chain: cert, private_key: key }], true);
server.bindAsync('0.0.0.0:0', credentials, (error, port) => {
  if (error !== null) throw error;
  process.send?.(port);
});
