import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Client, credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const PATH = '/grpc.health.v1.Health/';
const identity = (bytes: Buffer): Buffer => bytes;
const SERVING = Buffer.from([8, 1]);
const NOT_SERVING = Buffer.from([8, 2]);
const SERVICE_UNKNOWN = Buffer.from([8, 3]);

function request(service: string): Buffer {
  return service === ''
    ? Buffer.alloc(0)
    : Buffer.concat([Buffer.from([10, service.length]), Buffer.from(service)]);
}

describe('HealthService', () => {
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
    await until(() => test.gateway.trouble === undefined, 'ready');
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
        identity,
        identity,
        body,
        new Metadata(),
        { deadline: Date.now() + 30_000 },
        (error, answer) => resolve(error ?? answer ?? Buffer.alloc(0)),
      );
    });

  it('answers SERVING while the driver is ready, otherwise NOT_SERVING', async () => {
    for (const service of ['', 'csi.v1.Controller'])
      assert.deepEqual(await check(service), SERVING);
    await driver.close();
    await until(
      async () => NOT_SERVING.equals((await check('')) as Buffer),
      'the change is noticed',
    );
    driver = await startDriver();
    await until(async () => SERVING.equals((await check('')) as Buffer), 'the change is noticed');
  });

  it('refuses other services, other methods and malformed requests', async () => {
    assert.equal(((await check('unknown')) as ServiceError).code, status.NOT_FOUND);
    assert.equal(((await check('', 'List')) as ServiceError).code, status.UNIMPLEMENTED);
    assert.equal(
      ((await check('', 'Check', Buffer.from([10, 200]))) as ServiceError).code,
      status.INTERNAL,
    );
  });

  it('sends a watcher each change and ends the watch at shutdown', async () => {
    const statuses: Buffer[] = [];
    const watch = client.makeServerStreamRequest(
      `${PATH}Watch`,
      identity,
      identity,
      request(''),
      new Metadata(),
      {},
    );
    const ended = new Promise<ServiceError>((resolve) =>
      watch.on('error', (error) => resolve(error as ServiceError)),
    );
    watch.on('data', (message: Buffer) => statuses.push(message));
    await until(() => statuses.length === 1, 'first');
    await driver.close();
    await until(() => statuses.length === 2, 'second');
    driver = await startDriver();
    await until(() => statuses.length === 3, 'third');
    const closing = test.gateway.close(0);
    const error = await ended;
    await closing;
    assert.equal(error.code, status.UNAVAILABLE);
    assert.deepEqual(statuses, [SERVING, NOT_SERVING, SERVING, NOT_SERVING]);
  });

  it('sends SERVICE_UNKNOWN to a watcher of an unknown service', async () => {
    const watch = client.makeServerStreamRequest(
      `${PATH}Watch`,
      identity,
      identity,
      request('unknown'),
      new Metadata(),
      {},
    );
    watch.on('error', () => undefined);
    const first = await new Promise<Buffer>((resolve) => watch.once('data', resolve));
    assert.deepEqual(first, SERVICE_UNKNOWN);
    watch.cancel();
  });
});
