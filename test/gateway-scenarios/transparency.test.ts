import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { create, toBinary, type DescMethod } from '@bufbuild/protobuf';
import { Client, credentials, Metadata, status } from '@grpc/grpc-js';
import { Controller, Identity, Node } from '#src/csi/generated/csi_pb.ts';
import { methodPath, methodsByPath } from '#src/csi/methods.ts';
import { startSampleDriver, type SampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder, until } from '../harness/csi-folder.ts';
import { startTestGateway, volumeRequest } from '../harness/csi-gateway.ts';

/** Everything that a caller of gRPC can see of an answer. */
interface Seen {
  readonly code: number;
  readonly details: string;
  readonly message: string | undefined;
  readonly headers: Record<string, unknown>;
  readonly trailers: Record<string, unknown>;
}

const same = (bytes: Buffer): Buffer => bytes;

function ask(client: Client, path: string, body: Uint8Array): Promise<Seen> {
  return new Promise((resolve) => {
    let message: string | undefined;
    let headers: Record<string, unknown> = {};
    const call = client.makeUnaryRequest(
      path,
      same,
      same,
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
      // An answer that is trailers only has its date among them.
      resolve({
        code,
        details,
        message,
        headers: withoutDate(headers),
        trailers: withoutDate(trailers),
      });
    });
  });
}

function withoutDate(headers: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name !== 'date'));
}

const capability = volumeRequest('x').volumeCapabilities;

/** Calls in the order in which they are made; `request` gets the handle of the volume. The idea of
 * csi-sanity, for every test run. */
const SCRIPT: readonly {
  readonly title: string;
  readonly method: DescMethod;
  readonly request: (id: string) => Record<string, unknown>;
}[] = [
  { title: 'probes', method: Identity.method.probe, request: () => ({}) },
  { title: 'says its name', method: Identity.method.getPluginInfo, request: () => ({}) },
  {
    title: 'says its capabilities',
    method: Identity.method.getPluginCapabilities,
    request: () => ({}),
  },
  {
    title: 'says what its controller can',
    method: Controller.method.controllerGetCapabilities,
    request: () => ({}),
  },
  { title: 'names its node', method: Node.method.nodeGetInfo, request: () => ({}) },
  {
    title: 'creates',
    method: Controller.method.createVolume,
    request: () => volumeRequest('größe-☃'),
  },
  {
    title: 'creates again to the same end',
    method: Controller.method.createVolume,
    request: () => volumeRequest('größe-☃'),
  },
  {
    title: 'refuses the same name at another size',
    method: Controller.method.createVolume,
    request: () => ({ ...volumeRequest('größe-☃'), capacityRange: { requiredBytes: 2n ** 40n } }),
  },
  {
    title: 'refuses no name',
    method: Controller.method.createVolume,
    request: () => volumeRequest(''),
  },
  {
    title: 'refuses no capabilities',
    method: Controller.method.createVolume,
    request: () => ({ name: 'bare' }),
  },
  {
    title: 'refuses more than there is',
    method: Controller.method.createVolume,
    request: () => ({ ...volumeRequest('huge'), capacityRange: { requiredBytes: 2n ** 60n } }),
  },
  { title: 'lists', method: Controller.method.listVolumes, request: () => ({}) },
  {
    title: 'refuses a token that it never gave',
    method: Controller.method.listVolumes,
    request: () => ({ startingToken: 'no-such-token' }),
  },
  {
    title: 'refuses fewer than no entries',
    method: Controller.method.listVolumes,
    request: () => ({ maxEntries: -1 }),
  },
  {
    title: 'finds',
    method: Controller.method.controllerGetVolume,
    request: (id) => ({ volumeId: id }),
  },
  {
    title: 'does not find',
    method: Controller.method.controllerGetVolume,
    request: () => ({ volumeId: 'nobody' }),
  },
  { title: 'says its capacity', method: Controller.method.getCapacity, request: () => ({}) },
  {
    title: 'confirms capabilities',
    method: Controller.method.validateVolumeCapabilities,
    request: (id) => ({ volumeId: id, volumeCapabilities: capability }),
  },
  { title: 'deletes', method: Controller.method.deleteVolume, request: (id) => ({ volumeId: id }) },
  {
    title: 'deletes again to the same end',
    method: Controller.method.deleteVolume,
    request: (id) => ({ volumeId: id }),
  },
  { title: 'refuses no handle', method: Controller.method.deleteVolume, request: () => ({}) },
];

describe('a driver behind the gateway, and the same driver without', () => {
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
    await until('ready', () => gateway.gateway.trouble === undefined);
  });
  after(async () => {
    direct.close();
    through.close();
    await gateway.close();
    await driver.close();
    await folder.remove();
  });

  let handle = '';
  // CSI's calls may be repeated to the same end, so both ways can lead to one driver; which is
  // first changes from call to call.
  for (const [index, { title, method, request }] of SCRIPT.entries()) {
    it(`${title}, seen alike`, async () => {
      handle = driver.volumes()[0]?.handle ?? handle;
      const body = toBinary(method.input, create(method.input, request(handle)));
      const ways = index % 2 === 0 ? [direct, through] : [through, direct];
      const seen: Seen[] = [];
      for (const way of ways) seen.push(await ask(way, methodPath(method), body));
      assert.deepEqual(seen[0], seen[1]);
      assert.equal(seen[0]?.code === status.OK, !/refuses|does not/.test(title), seen[0]?.details);
    });
  }

  it('answers every method alike, known to CSI or not', async () => {
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

  it('answers garbage alike', async () => {
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
