import assert from 'node:assert/strict';
import { connect as connectHttp2 } from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import type { Socket } from 'node:net';
import { after, afterEach, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { defaultPatience } from '#src/csi-gateway/patience.ts';
import { framed } from '#src/csi-gateway/wire.ts';
import { makeFolder, until } from '../harness/csi-folder.ts';
import { EMPTY_SETTINGS, emptyCall, ENDLESS_WINDOWS, PREFACE } from '../harness/csi-frames.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { answerBytes, startRawDriver } from '../harness/csi-raw-driver.ts';
import type { RawDriver } from '../harness/csi-raw-driver.ts';

describe('the door’s patience', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  const sockets: Socket[] = [];
  const sessions: ClientHttp2Session[] = [];
  let answerMs = 0;

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (call.path.startsWith('/csi.v1.Identity') || call.path.endsWith('GetCapabilities')) return false;
      return void setTimeout(() => answerBytes(call, framed(Buffer.alloc(200_000)), { 'grpc-status': '0' }), answerMs);
    });
    test = await startTestGateway(folder, {
      patience: { ...defaultPatience, greetingMs: 150, requestMs: 200, answerMs: 250, idleMs: 200 },
    });
    await until('ready', () => test.gateway.trouble === undefined);
  });
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy();
    for (const session of sessions.splice(0)) session.destroy();
  });
  after(async () => {
    await test.close();
    await driver.close();
    await folder.remove();
  });

  const dial = (): { readonly socket: Socket; readonly closed: Promise<void> } => {
    const socket = connectSocket(folder.file('gw.sock'));
    sockets.push(socket);
    socket.on('error', () => undefined);
    socket.resume();
    return { socket, closed: new Promise((resolve) => socket.once('close', () => resolve())) };
  };
  const connect = (socket = 'gw.sock'): ClientHttp2Session => {
    const session = connectHttp2('http://localhost', { createConnection: () => connectSocket(folder.file(socket)) });
    sessions.push(session);
    session.on('error', () => undefined);
    return session;
  };
  const call = (session = connect()): { readonly session: ClientHttp2Session; readonly stream: ClientHttp2Stream } => {
    const stream = session.request({ ':method': 'POST', ':path': '/csi.v1.Controller/GetCapacity', 'content-type': 'application/grpc' });
    stream.on('error', () => undefined);
    return { session, stream };
  };

  it('ends a connection that says nothing', () => dial().closed);

  it('ends a connection that greets but is not there any more', async () => {
    const { socket, closed } = dial();
    socket.write(Buffer.concat([PREFACE, EMPTY_SETTINGS]));
    await closed;
  });

  it('keeps a connection that only waits', async () => {
    const session = connect();
    let pings = 0;
    session.on('ping', () => (pings += 1));
    await until('it was asked twice whether it is there', () => pings >= 2);
    assert.ok(!session.closed);
  });

  it('refuses a call whose request does not arrive, not forwarded', async () => {
    const { stream } = call();
    stream.write(Buffer.from([0, 0, 0]));
    const headers = await new Promise<Record<string, unknown>>((resolve) => stream.once('response', resolve));
    assert.equal(headers['grpc-status'], String(Code.DeadlineExceeded));
    assert.equal(headers['sutler-not-forwarded'], '1');
    await new Promise((resolve) => stream.once('close', resolve));
  });

  it('does not hurry a call that the driver takes its time for', async () => {
    answerMs = 700;
    const { stream } = call();
    stream.end(Buffer.alloc(5));
    let bytes = 0;
    stream.on('data', (chunk: Buffer) => (bytes += chunk.length));
    await new Promise((resolve) => stream.once('end', resolve));
    answerMs = 0;
    assert.equal(bytes, 200_005);
  });

  it('gives up on a caller that does not take its answer', async () => {
    const { stream } = call();
    stream.end(Buffer.alloc(5));
    const code = await new Promise((resolve) => stream.once('close', () => resolve(stream.rstCode)));
    assert.equal(code, 8);
  });

  it('ends an answer that is not gRPC and is not taken', async () => {
    const stream = connect().request({ ':method': 'POST', ':path': '/', 'content-type': 'text/html' });
    stream.on('error', () => undefined);
    const code = await new Promise((resolve) => stream.once('close', () => resolve(stream.rstCode)));
    assert.equal(code, 8);
  });

  it('ends a connection that does not even take a reset', async () => {
    const patient = await startTestGateway(folder, {
      listen: { kind: 'unix', path: folder.file('deaf.sock') },
      patience: { ...defaultPatience, answerMs: 100 },
    });
    await until('ready', () => patient.gateway.trouble === undefined);
    const socket = connectSocket(folder.file('deaf.sock'));
    sockets.push(socket);
    socket.on('error', () => undefined);
    // More answers than the socket takes while nobody reads.
    const calls = [1, 3, 5, 7, 9].map((stream) => emptyCall(stream, '/csi.v1.Controller/GetCapacity'));
    socket.write(Buffer.concat([PREFACE, ENDLESS_WINDOWS, ...calls]));
    const connections = async (): Promise<string | undefined> =>
      /^sutler_gateway_connections (\d+)$/m.exec(await patient.metrics.metrics())?.[1];
    await until('it is in', async () => (await connections()) === '1');
    await until('it is out', async () => (await connections()) === '0');
    await patient.close();
  });

  it('shuts down although a caller reads nothing', async () => {
    const patient = await startTestGateway(folder, { listen: { kind: 'unix', path: folder.file('down.sock') } });
    await until('ready', () => patient.gateway.trouble === undefined);
    const before = driver.calls.length;
    const socket = connectSocket(folder.file('down.sock'));
    sockets.push(socket);
    socket.on('error', () => undefined);
    const calls = [1, 3, 5, 7, 9].map((stream) => emptyCall(stream, '/csi.v1.Controller/GetCapacity'));
    socket.write(Buffer.concat([PREFACE, ENDLESS_WINDOWS, ...calls]));
    await until(
      'the calls were answered',
      async () => driver.calls.length >= before + 5 && /in_flight 0$/m.test(await patient.metrics.metrics()),
    );
    await patient.close();
  });

  it('refuses a call with more metadata than gRPC allows, not forwarded, and takes one with less', async () => {
    const session = connect();
    const headers = { ':method': 'POST', ':path': '/csi.v1.Controller/GetCapacity', 'content-type': 'application/grpc' };
    const ask = (bytes: number): Promise<Record<string, unknown>> => {
      const stream = session.request({ ...headers, 'x-large': 'x'.repeat(bytes) });
      stream.end(Buffer.alloc(5));
      stream.resume();
      return new Promise((resolve) => stream.once('response', resolve));
    };
    const before = driver.calls.length;
    const refused = await ask(16_400);
    assert.equal(refused['grpc-status'], String(Code.ResourceExhausted));
    assert.equal(refused['sutler-not-forwarded'], '1');
    assert.equal(driver.calls.length, before);
    assert.equal((await ask(16_000))['grpc-status'], undefined, 'it comes behind the message');
    assert.equal(driver.calls.length, before + 1);
  });

  it('ends the connection that keeps most calls waiting when there are too many, and serves the others', async () => {
    const patient = await startTestGateway(folder, {
      listen: { kind: 'unix', path: folder.file('crowd.sock') },
      patience: { ...defaultPatience, waiting: 10 },
    });
    await until('ready', () => patient.gateway.trouble === undefined);
    const [small, large] = [connect('crowd.sock'), connect('crowd.sock')];
    const wait = (session: ClientHttp2Session): unknown => call(session).stream.write(Buffer.from([0, 0, 0]));
    for (let i = 0; i < 4; i += 1) wait(small);
    for (let i = 0; i < 7; i += 1) wait(large);
    await until('the one with more is gone', () => large.destroyed);
    assert.ok(!small.destroyed);
    for (let i = 0; i < 3; i += 1) wait(small);
    await patient.client.probe({ timeoutMs: 2_000 });
    assert.match(await patient.metrics.metrics(), /turned_away_total\{reason="too-many"\} 1$/m);
    await patient.close();
  });

  it('makes room for one more by ending a connection that never called', async () => {
    const patient = await startTestGateway(folder, { listen: { kind: 'unix', path: folder.file('full.sock') } });
    await until('ready', () => patient.gateway.trouble === undefined);
    await patient.client.probe({ timeoutMs: 2_000 });
    const idle = Array.from({ length: 300 }, () => {
      const socket = connectSocket(folder.file('full.sock'));
      sockets.push(socket);
      socket.on('error', () => undefined);
      socket.resume();
      socket.write(Buffer.concat([PREFACE, EMPTY_SETTINGS]));
      return socket;
    });
    await until('some had to go', async () => /reason="too-many"\} 4\d/.test(await patient.metrics.metrics()));
    await until('they are gone', () => idle.filter((socket) => socket.destroyed).length >= 45);
    await patient.client.probe({ timeoutMs: 2_000 });
    assert.match(await patient.metrics.metrics(), /^sutler_gateway_connections 256$/m);
    await patient.close();
  });
});
