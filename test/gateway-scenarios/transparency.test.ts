import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { create, type DescMethod, toBinary } from '@bufbuild/protobuf';
import { Client, credentials, Metadata, status } from '@grpc/grpc-js';
import { Controller, Identity, Node } from '#src/csi/generated/csi_pb.ts';
import { methodPath, methodsByPath } from '#src/csi/methods.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

/** Everything that a gRPC caller can see of a response. */
interface Visible {
  readonly code: number;
  readonly details: string;
  readonly message: string | undefined;
  readonly headers: Record<string, unknown>;
  readonly trailers: Record<string, unknown>;
}

const identity = (bytes: Buffer): Buffer => bytes;

function ask(client: Client, path: string, body: Uint8Array): Promise<Visible> {
  return new Promise((resolve) => {
    let message: string | undefined;
    let headers: Record<string, unknown> = {};
    const call = client.makeUnaryRequest(
      path,
      identity,
      identity,
      Buffer.from(body),
      new Metadata(),
      { deadline: Date.now() + 30_000 },
      (_error, answer) => {
        message = answer?.toString('hex');
      },
    );
    call.on('metadata', (metadata: Metadata) => (headers = metadata.getMap()));
    call.on('status', ({ code, details, metadata }) => {
      const trailers = metadata.getMap();
      delete trailers['sutler-driver-status'];
      delete trailers['sutler-instance'];
      delete trailers['sutler-time'];
      // A trailers-only response has its date among the trailers.
      resolve({
        code,
        details,
        message,
        headers: removeDate(headers),
        trailers: removeDate(trailers),
      });
    });
  });
}

function removeDate(headers: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'date'));
}

const capability = volumeRequest('x').volumeCapabilities;

/** Calls in their order, like a small csi-sanity; `request` gets the handle of the volume. */
const SCRIPT: readonly {
  readonly title: string;
  readonly method: DescMethod;
  readonly request: (id: string) => Record<string, unknown>;
}[] = [
  { title: 'probes', method: Identity.method.probe, request: () => ({}) },
  { title: 'returns its name', method: Identity.method.getPluginInfo, request: () => ({}) },
  {
    title: 'returns its capabilities',
    method: Identity.method.getPluginCapabilities,
    request: () => ({}),
  },
  {
    title: 'returns its controller capabilities',
    method: Controller.method.controllerGetCapabilities,
    request: () => ({}),
  },
  { title: 'returns its node', method: Node.method.nodeGetInfo, request: () => ({}) },
  {
    title: 'creates a volume',
    method: Controller.method.createVolume,
    request: () => volumeRequest('größe-☃'),
  },
  {
    title: 'creates the same volume again',
    method: Controller.method.createVolume,
    request: () => volumeRequest('größe-☃'),
  },
  {
    title: 'refuses the same name with another size',
    method: Controller.method.createVolume,
    request: () => ({ ...volumeRequest('größe-☃'), capacityRange: { requiredBytes: 2n ** 40n } }),
  },
  {
    title: 'refuses an empty name',
    method: Controller.method.createVolume,
    request: () => volumeRequest(''),
  },
  {
    title: 'refuses missing capabilities',
    method: Controller.method.createVolume,
    request: () => ({ name: 'bare' }),
  },
  {
    title: 'refuses more than its capacity',
    method: Controller.method.createVolume,
    request: () => ({ ...volumeRequest('huge'), capacityRange: { requiredBytes: 2n ** 60n } }),
  },
  { title: 'lists volumes', method: Controller.method.listVolumes, request: () => ({}) },
  {
    title: 'refuses an unknown token',
    method: Controller.method.listVolumes,
    request: () => ({ startingToken: 'no-such-token' }),
  },
  {
    title: 'refuses a negative number of entries',
    method: Controller.method.listVolumes,
    request: () => ({ maxEntries: -1 }),
  },
  {
    title: 'finds a volume',
    method: Controller.method.controllerGetVolume,
    request: (id) => ({ volumeId: id }),
  },
  {
    title: 'does not find an unknown volume',
    method: Controller.method.controllerGetVolume,
    request: () => ({ volumeId: 'unknown' }),
  },
  { title: 'returns its capacity', method: Controller.method.getCapacity, request: () => ({}) },
  {
    title: 'confirms capabilities',
    method: Controller.method.validateVolumeCapabilities,
    request: (id) => ({ volumeId: id, volumeCapabilities: capability }),
  },
  {
    title: 'deletes a volume',
    method: Controller.method.deleteVolume,
    request: (id) => ({ volumeId: id }),
  },
  {
    title: 'deletes the same volume again',
    method: Controller.method.deleteVolume,
    request: (id) => ({ volumeId: id }),
  },
  { title: 'refuses an empty handle', method: Controller.method.deleteVolume, request: () => ({}) },
];

describe('a driver behind the gateway and without it', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let gateway: Awaited<ReturnType<typeof startTestGateway>>;
  let direct: Client;
  let through: Client;
  before(async () => {
    folder = await makeFolder();
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
    });
    gateway = await startTestGateway(folder, { allowAll: true });
    direct = new Client(`unix:${folder.file('csi.sock')}`, credentials.createInsecure());
    through = new Client(`unix:${folder.file('gw.sock')}`, credentials.createInsecure());
    await until(() => gateway.gateway.trouble === undefined, 'ready');
  });
  after(async () => {
    direct.close();
    through.close();
    await gateway.close();
    await driver.close();
    await folder.remove();
  });

  let handle = '';
  // CSI calls are idempotent, so the same call can go to one driver both ways. Which way comes
  // first alternates.
  for (const [index, { title, method, request }] of SCRIPT.entries()) {
    it(`${title}, with the same response both ways`, async () => {
      handle = driver.volumes()[0]?.handle ?? handle;
      const body = toBinary(method.input, create(method.input, request(handle)));
      const clients = index % 2 === 0 ? [direct, through] : [through, direct];
      const seen: Visible[] = [];
      for (const client of clients) seen.push(await ask(client, methodPath(method), body));
      assert.deepEqual(seen[0], seen[1]);
      assert.equal(seen[0]?.code === status.OK, !/refuses|does not/.test(title), seen[0]?.details);
    });
  }

  it('gives the same response for every method, known to CSI or not', async () => {
    for (const path of [
      ...methodsByPath.keys(),
      '/csi.v9.Controller/Unheard',
      '/vendor.v1.Extra/Do',
    ])
      assert.deepEqual(
        await ask(through, path, Buffer.alloc(0)),
        await ask(direct, path, Buffer.alloc(0)),
        path,
      );
  });

  it('gives the same response for malformed requests', async () => {
    for (const body of [
      Buffer.from([0xff, 0xff]),
      Buffer.from([0x0a, 0x7f]),
      Buffer.alloc(1_000, 0x41),
    ]) {
      const path = methodPath(Controller.method.getCapacity);
      assert.deepEqual(await ask(through, path, body), await ask(direct, path, body));
    }
  });
});
