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

function request(service: string): Buffer {
  return service === ''
    ? Buffer.alloc(0)
    : Buffer.concat([Buffer.from([10, service.length]), Buffer.from(service)]);
}

describe('the health service', () => {
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
});
