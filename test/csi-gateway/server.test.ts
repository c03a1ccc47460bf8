import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Client, credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  answerStatus,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

interface Answer {
  readonly error: ServiceError | null;
  readonly message: Buffer | undefined;
  readonly initial: Metadata | undefined;
  readonly trailing: Metadata;
}

function callRaw(
  client: Client,
  path: string,
  body: Buffer,
  metadata = new Metadata(),
): Promise<Answer> {
  return new Promise((resolve) => {
    let initial: Metadata | undefined;
    let result: { error: ServiceError | null; message: Buffer | undefined } = {
      error: null,
      message: undefined,
    };
    const call = client.makeUnaryRequest(
      path,
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => bytes,
      body,
      metadata,
      { deadline: Date.now() + 30_000 },
      (error, message) => (result = { error, message }),
    );
    call.on('metadata', (received) => (initial = received));
    call.on('status', (end) => resolve({ ...result, initial, trailing: end.metadata }));
  });
}

describe('the gateway as a gRPC server', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let open: Awaited<ReturnType<typeof startTestGateway>>;
  let strict: Awaited<ReturnType<typeof startTestGateway>>;
  let client: Client;
  let script: (call: RawCall) => unknown = () => false;
  const LIST = '/csi.v1.Controller/ListSnapshots';
  const METHOD = '/csi.v1.Controller/ControllerPublishVolume';
  const HEALTH = '/grpc.health.v1.Health/Check';

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) =>
      call.path.startsWith('/csi.v1.Identity') ? false : script(call),
    );
    open = await startTestGateway(folder, { allowAll: true, maxRequestBytes: 6_000_000 });
    strict = await startTestGateway(folder, {
      listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
    });
    client = new Client(`unix:${folder.file('gw.sock')}`, credentials.createInsecure(), {
      'grpc.max_receive_message_length': -1,
    });
    await until(
      () => open.gateway.trouble === undefined && strict.gateway.trouble === undefined,
      'ready',
    );
  });
  after(async () => {
    client.close();
    await open.close();
    await strict.close();
    await driver.close();
    await folder.remove();
  });

  it('forwards messages byte for byte in both directions', async () => {
    const request = Buffer.from(Array.from({ length: 1000 }, (_, i) => i % 256));
    const response = Buffer.from([0xff, 0xfe, 0x00, 0x80]);
    script = (call) => answerBytes(call, frameMessage(response), { 'grpc-status': '0' });
    const { error, message } = await callRaw(client, METHOD, request);
    assert.equal(error, null);
    assert.deepEqual(message, response);
    assert.deepEqual(driver.calls.at(-1)?.body, frameMessage(request));
    assert.equal(driver.calls.at(-1)?.path, METHOD);
  });

  it('forwards binary and repeated metadata in both directions, and trailers', async () => {
    script = (call) =>
      answerBytes(
        call,
        frameMessage(Buffer.from('x')),
        { 'grpc-status': '0', 'x-trail': ['t1', 't2'], 'trail-bin': 'AAH/' },
        { 'x-head': 'h' },
      );
    const metadata = new Metadata();
    for (const [key, value] of [
      ['x-many', 'a'],
      ['x-many', 'b'],
      ['x-bytes-bin', Buffer.from([0, 255, 1])],
      ['traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
      ['grpc-trace-bin', Buffer.from([0, 0, 1, 2, 255])],
    ] as const)
      metadata.add(key, value);
    const { initial, trailing } = await callRaw(client, METHOD, Buffer.from('q'), metadata);
    const sent = (name: string): string =>
      (driver.calls.at(-1)?.headers ?? [])
        .filter(([key]) => key === name)
        .map(([, value]) => value)
        .join(',')
        .replaceAll(' ', '');
    assert.deepEqual(['x-many', 'x-bytes-bin', 'traceparent', 'grpc-trace-bin'].map(sent), [
      'a,b',
      'AP8B',
      metadata.get('traceparent')[0],
      'AAABAv8=',
    ]);
    assert.deepEqual(initial?.get('x-head'), ['h']);
    assert.equal(trailing.get('x-trail').join(',').replaceAll(' ', ''), 't1,t2');
    assert.deepEqual(trailing.get('trail-bin'), [Buffer.from([0, 1, 255])]);
    assert.deepEqual(trailing.get('sutler-driver-status'), ['1']);
  });

  it('forwards status details and non-ASCII messages', async () => {
    const details = Buffer.from([8, 5, 18, 3, 0xe2, 0x98, 0x83]);
    script = (call) =>
      answerBytes(call, Buffer.alloc(0), {
        'grpc-status': '8',
        'grpc-message': 'Gr%C3%B6%C3%9Fe %E2%98%83',
        'grpc-status-details-bin': details.toString('base64'),
      });
    const { error } = await callRaw(client, METHOD, Buffer.from('q'));
    assert.equal(error?.code, status.RESOURCE_EXHAUSTED);
    assert.equal(error?.details, 'Größe ☃');
    assert.deepEqual(error?.metadata.get('grpc-status-details-bin'), [details]);
  });

  it('forwards the time that is left of the deadline', async () => {
    script = (call) => answerBytes(call, frameMessage(Buffer.from('x')), { 'grpc-status': '0' });
    await callRaw(client, METHOD, Buffer.from('q'));
    const timeout =
      driver.calls.at(-1)?.headers.find(([name]) => name === 'grpc-timeout')?.[1] ?? '';
    assert.match(timeout, /^\d+m$/);
    const leftMs = Number(timeout.slice(0, -1));
    assert.ok(leftMs > 10_000 && leftMs <= 30_001, timeout);
  });

  it('forwards lists above 4 MiB and refuses those above its own limit', async () => {
    const large = Buffer.alloc(5_500_000, 7);
    script = (call) => answerBytes(call, frameMessage(large), { 'grpc-status': '0' });
    const { message } = await callRaw(client, LIST, large);
    assert.equal(message?.equals(large), true);
    const before = driver.calls.length;
    const { error } = await callRaw(client, LIST, Buffer.alloc(6_500_000));
    assert.equal(error?.code, status.RESOURCE_EXHAUSTED);
    assert.deepEqual(error?.metadata.get('sutler-not-forwarded'), ['1']);
    assert.equal(driver.calls.length, before);
  });

  it('ignores the sutler-* headers of a caller', async () => {
    script = (call) => answerStatus(call, { 'grpc-status': '8' });
    const metadata = new Metadata();
    for (const mark of ['driver-status', 'not-forwarded', 'full', 'draining'])
      metadata.set(`sutler-${mark}`, '1');
    const { trailing } = await callRaw(client, METHOD, Buffer.from('q'), metadata);
    const sent = driver.calls.at(-1)?.headers.map(([name]) => name) ?? [];
    const marks = (names: readonly string[]) => names.filter((name) => name.startsWith('sutler-'));
    assert.deepEqual(marks(sent), []);
    const answered = marks(Object.keys(trailing.getMap())).toSorted();
    assert.deepEqual(answered, ['sutler-driver-status', 'sutler-time']);
  });

  it('refuses a method that is not allowed with Unimplemented, not forwarded', async () => {
    const { address } = strict;
    assert.ok(address.kind === 'tcp');
    const tcp = new Client(`127.0.0.1:${address.port}`, credentials.createInsecure());
    const before = driver.calls.length;
    for (const path of [METHOD, '/csi.v1.Node/NodeStageVolume']) {
      const { error } = await callRaw(tcp, path, Buffer.from('q'));
      assert.equal(error?.code, status.UNIMPLEMENTED, path);
      assert.deepEqual(error?.metadata.get('sutler-not-forwarded'), ['1']);
    }
    for (const path of ['/vendor.v9.Extra/Twist', '/csi.v1.Controller/createvolume', '/'])
      assert.equal(
        (await callRaw(tcp, path, Buffer.from('q'))).error?.code,
        status.UNIMPLEMENTED,
        path,
      );
    assert.equal(driver.calls.length, before);
    tcp.close();
  });

  it('answers a health check with SERVING only while the driver is ready', async () => {
    const other = await startTestGateway(folder, {
      driver: { kind: 'unix', path: folder.file('none.sock') },
      listen: { kind: 'unix', path: folder.file('other.sock') },
    });
    const otherClient = new Client(
      `unix:${folder.file('other.sock')}`,
      credentials.createInsecure(),
    );
    const check = async (of: Client, service: string): Promise<Answer> =>
      callRaw(of, HEALTH, Buffer.concat([Buffer.from([10, service.length]), Buffer.from(service)]));
    for (const service of ['', 'csi.v1.Controller'])
      assert.deepEqual((await check(client, service)).message, Buffer.from([8, 1]));
    assert.deepEqual((await check(otherClient, '')).message, Buffer.from([8, 2]));
    assert.equal((await check(client, 'unknown')).error?.code, status.NOT_FOUND);
    otherClient.close();
    await other.close();
  });
});
