import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Client, credentials, Metadata, status } from '@grpc/grpc-js';
import type { ServiceError } from '@grpc/grpc-js';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import type { SampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder, until } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';

const PATH = '/grpc.health.v1.Health/';
const same = (bytes: Buffer): Buffer => bytes;
const SERVING = Buffer.from([8, 1]);
const NOT_SERVING = Buffer.from([8, 2]);
const SERVICE_UNKNOWN = Buffer.from([8, 3]);

function request(service: string): Buffer {
  return service === ''
    ? Buffer.alloc(0)
    : Buffer.concat([Buffer.from([10, service.length]), Buffer.from(service)]);
}

describe('grpc.health.v1 of the gateway', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let client: Client;
  before(async () => (folder = await makeFolder()));
  after(() => folder.remove());
  const startDriver = (): Promise<SampleDriver> =>
    startSampleDriver({ socket: folder.file('csi.sock'), dataDir: folder.file('data') });
  beforeEach(async () => {
    driver = await startDriver();
    test = await startTestGateway(folder);
    client = new Client(`unix:${folder.file('gw.sock')}`, credentials.createInsecure());
    await until('ready', () => test.gateway.trouble === undefined);
  });
  afterEach(async () => {
    client.close();
    await test.close();
    await driver.close();
  });

  const check = (
    service: string,
    method = 'Check',
    body = request(service),
  ): Promise<Buffer | ServiceError> =>
    new Promise((resolve) => {
      client.makeUnaryRequest(
        PATH + method,
        same,
        same,
        body,
        new Metadata(),
        { deadline: Date.now() + 30_000 },
        (error, answer) => resolve(error ?? answer ?? Buffer.alloc(0)),
      );
    });

  it('says SERVING while the driver answers, NOT_SERVING while it does not', async () => {
    for (const service of ['', 'csi.v1.Controller'])
      assert.deepEqual(await check(service), SERVING);
    await driver.close();
    await until('noticed', async () => NOT_SERVING.equals((await check('')) as Buffer));
    driver = await startDriver();
    await until('noticed', async () => SERVING.equals((await check('')) as Buffer));
  });

  it('knows no other services and no other methods', async () => {
    assert.equal(((await check('nobody')) as ServiceError).code, status.NOT_FOUND);
    assert.equal(((await check('', 'List')) as ServiceError).code, status.UNIMPLEMENTED);
    assert.equal(
      ((await check('', 'Check', Buffer.from([10, 200]))) as ServiceError).code,
      status.INVALID_ARGUMENT,
    );
  });

  it('tells a watcher each change, and ends the watch when it shuts down', async () => {
    const told: Buffer[] = [];
    const watch = client.makeServerStreamRequest(
      `${PATH}Watch`,
      same,
      same,
      request(''),
      new Metadata(),
      {},
    );
    const ended = new Promise<ServiceError>((resolve) =>
      watch.on('error', (error) => resolve(error as ServiceError)),
    );
    watch.on('data', (message: Buffer) => told.push(message));
    await until('first', () => told.length === 1);
    await driver.close();
    await until('second', () => told.length === 2);
    driver = await startDriver();
    await until('third', () => told.length === 3);
    const closing = test.gateway.close(0);
    const error = await ended;
    await closing;
    assert.equal(error.code, status.UNAVAILABLE);
    assert.deepEqual(told, [SERVING, NOT_SERVING, SERVING, NOT_SERVING]);
  });

  it('tells a watcher of an unknown service that it is unknown, and goes on', async () => {
    const watch = client.makeServerStreamRequest(
      `${PATH}Watch`,
      same,
      same,
      request('nobody'),
      new Metadata(),
      {},
    );
    watch.on('error', () => undefined);
    const first = await new Promise<Buffer>((resolve) => watch.once('data', resolve));
    assert.deepEqual(first, SERVICE_UNKNOWN);
    watch.cancel();
  });
});
