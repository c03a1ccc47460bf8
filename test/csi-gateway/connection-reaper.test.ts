import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
} from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { ReaperLimits } from '#src/csi-gateway/connection-reaper.ts';
import { frameMessage } from '#src/csi/grpc-wire.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { EMPTY_SETTINGS, emptyCall, ENDLESS_WINDOWS, PREFACE } from '../harness/csi-frames.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import {
  answerBytes,
  type RawCall,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const CAPACITY = '/csi.v1.Controller/GetCapacity';
/** The gateway's clock moves only when a test moves it. The limits are short because the reaper
 * checks in real time, four times in the shortest limit. */
const LIMITS: ReaperLimits = {
  replyMs: 100,
  requestMs: 110,
  answerMs: 120,
  idleMs: 130,
  maxWaitingCalls: 10,
};
const SETTINGS = { timeoutMs: 30_000 };

describe('ConnectionReaper', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let nowMs = 1_000_000;
  /** If set, calls that the driver has not answered; otherwise it answers at once. */
  let unanswered: RawCall[] | undefined;
  const opened: { destroy(): unknown }[] = [];
  const answer = (call: RawCall): void =>
    answerBytes(call, frameMessage(Buffer.alloc(200_000)), { 'grpc-status': '0' });

  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (call.path !== CAPACITY) return false;
      return unanswered === undefined ? answer(call) : void unanswered.push(call);
    });
  });
  beforeEach(async () => {
    unanswered = undefined;
    test = await startTestGateway(folder, {
      reaperLimits: LIMITS,
      clock: { ...systemClock, nowMs: () => nowMs },
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  afterEach(async () => {
    for (const each of opened.splice(0)) each.destroy();
    await test.close();
  });
  after(async () => {
    await driver.close();
    await folder.remove();
  });

  const dial = (...frames: readonly Buffer[]): Socket => {
    const socket = connectSocket(folder.file('gw.sock'));
    opened.push(socket);
    socket.on('error', () => undefined);
    if (frames.length > 0) socket.write(Buffer.concat(frames));
    return socket;
  };
  const connect = async (): Promise<ClientHttp2Session> => {
    const session = connectHttp2('http://localhost', {
      createConnection: () => connectSocket(folder.file('gw.sock')),
    });
    opened.push(session);
    session.on('error', () => undefined);
    await once(session, 'remoteSettings');
    return session;
  };
  const call = (
    session: ClientHttp2Session,
    headers: Record<string, string> = {},
  ): ClientHttp2Stream => {
    const stream = session.request({
      ':method': 'POST',
      ':path': CAPACITY,
      'content-type': 'application/grpc',
      ...headers,
    });
    stream.on('error', () => undefined);
    return stream;
  };
  const headersOf = (stream: ClientHttp2Stream): Promise<Record<string, unknown>> =>
    new Promise((resolve) => stream.once('response', resolve));
  /** Once a ping is answered, the gateway has read everything that was written before it. */
  const ping = (session: ClientHttp2Session): Promise<void> =>
    new Promise((resolve, reject) =>
      session.ping((error: Error | null) => (error === null ? resolve() : reject(error))),
    );
  const connections = async (): Promise<number> =>
    Number(/^sutler_gateway_connections (\d+)$/m.exec(await test.metrics.metrics())?.[1] ?? 0);

  it('ends a connection that sends nothing', async () => {
    const socket = dial().resume();
    await until(async () => (await connections()) === 1, 'the connection is open');
    nowMs += LIMITS.replyMs + 1;
    await until(() => socket.closed, 'the connection has ended');
  });

  it('ends a connection whose peer no longer answers a ping', async () => {
    const socket = dial(PREFACE, EMPTY_SETTINGS);
    let isPinged = false;
    socket.on(
      'data',
      (bytes: Buffer) => (isPinged ||= bytes.includes(Buffer.from([0, 0, 8, 6, 0]))),
    );
    await until(() => socket.bytesRead > 0, 'the connection is open');
    nowMs += LIMITS.idleMs + 1;
    await until(() => isPinged, 'it is pinged');
    nowMs += LIMITS.replyMs + 1;
    await until(() => socket.closed, 'the connection has ended');
  });

  it('keeps an idle connection that answers pings', async () => {
    const session = await connect();
    let pings = 0;
    session.on('ping', () => (pings += 1));
    await ping(session);
    for (const times of [1, 2, 3]) {
      nowMs += LIMITS.idleMs + 1;
      await until(() => pings === times, 'it is pinged');
      await ping(session);
    }
    assert.ok(!session.destroyed);
  });

  it('refuses a call whose request does not arrive, not forwarded', async () => {
    const session = await connect();
    const stream = call(session);
    const answered = headersOf(stream);
    stream.write(Buffer.from([0, 0, 0]));
    await ping(session);
    nowMs += LIMITS.requestMs + 1;
    const headers = await answered;
    assert.equal(headers['grpc-status'], String(Code.DeadlineExceeded));
    assert.equal(headers['sutler-not-forwarded'], '1');
    stream.resume();
    nowMs += LIMITS.answerMs + 1;
    await until(() => stream.closed, 'the stream has ended');
  });

  it('does not limit how long the driver works on a call', async () => {
    const atDriver: RawCall[] = (unanswered = []);
    const stream = call(await connect());
    stream.end(Buffer.alloc(5));
    let bytes = 0;
    stream.on('data', (chunk: Buffer) => (bytes += chunk.length));
    const ended = new Promise((resolve) => stream.once('end', resolve));
    await until(() => atDriver.length === 1, 'the call is at the driver');
    nowMs += 3_600_000;
    await test.client.probe(SETTINGS);
    await new Promise((resolve) => setTimeout(resolve, LIMITS.replyMs));
    atDriver.forEach(answer);
    await ended;
    assert.equal(bytes, 200_005);
  });

  it('resets a call whose caller does not read the answer', async () => {
    const stream = call(await connect());
    const answered = headersOf(stream);
    stream.end(Buffer.alloc(5));
    await answered;
    nowMs += LIMITS.answerMs + 1;
    await until(() => stream.closed, 'the stream is reset');
    assert.equal(stream.rstCode, constants.NGHTTP2_CANCEL);
  });

  it('resets a call that is not gRPC and does not end', async () => {
    const stream = call(await connect(), { 'content-type': 'text/html' });
    assert.equal((await headersOf(stream))[':status'], 415);
    nowMs += LIMITS.answerMs + 1;
    await until(() => stream.closed, 'the stream is reset');
    assert.equal(stream.rstCode, constants.NGHTTP2_CANCEL);
  });

  /** Makes calls whose answers don't fit in the socket's buffer, and reads nothing. */
  const callWithoutReading = async (): Promise<void> => {
    const before = driver.calls.length;
    dial(PREFACE, ENDLESS_WINDOWS, ...[1, 3, 5, 7, 9].map((stream) => emptyCall(stream, CAPACITY)));
    await until(
      () =>
        driver.calls.filter(({ path }) => path === CAPACITY).length > 0 &&
        driver.calls.length >= before + 5,
      'the calls are at the driver',
    );
    await until(
      async () => /^sutler_gateway_in_flight 0$/m.test(await test.metrics.metrics()),
      'they are answered',
    );
  };

  it('ends a connection that does not even read a reset', async () => {
    await callWithoutReading();
    assert.equal(await connections(), 1);
    await until(async () => {
      nowMs += LIMITS.answerMs + 1;
      return (await connections()) === 0;
    }, 'the connection has ended');
  });

  it('shuts down even if a caller reads nothing', async () => {
    await callWithoutReading();
    await test.gateway.close(0);
  });

  it('refuses a call with more than 16 KiB of metadata, not forwarded', async () => {
    const session = await connect();
    const callWith = (bytes: number): Promise<Record<string, unknown>> => {
      const stream = call(session, { 'x-large': 'x'.repeat(bytes) });
      stream.end(Buffer.alloc(5));
      stream.resume();
      return headersOf(stream);
    };
    const countCalls = (): number => driver.calls.filter(({ path }) => path === CAPACITY).length;
    const before = countCalls();
    const refused = await callWith(16_400);
    assert.equal(refused['grpc-status'], String(Code.ResourceExhausted));
    assert.equal(refused['sutler-not-forwarded'], '1');
    assert.equal(countCalls(), before);
    assert.equal(
      (await callWith(16_000))['grpc-status'],
      undefined,
      'the status comes after the message',
    );
    assert.equal(countCalls(), before + 1);
  });

  it('ends the connection with most waiting calls when there are too many', async () => {
    const [small, large] = [await connect(), await connect()];
    const startCalls = async (session: ClientHttp2Session, calls: number): Promise<void> => {
      for (let i = 0; i < calls; i += 1) call(session).write(Buffer.from([0, 0, 0]));
      await ping(session).catch(() => undefined);
    };
    await startCalls(small, 4);
    await startCalls(large, 7);
    await until(() => large.destroyed, 'the connection with more calls has ended');
    assert.ok(!small.destroyed);
    await startCalls(small, 3);
    await test.client.probe(SETTINGS);
    assert.match(await test.metrics.metrics(), /turned_away_total\{reason="too-many"\} 1$/m);
  });

  it('replaces a connection that never called when there are too many', async () => {
    await test.client.probe(SETTINGS);
    const idle = Array.from({ length: 300 }, () => dial(PREFACE, EMPTY_SETTINGS).resume());
    await until(
      async () => /reason="too-many"\} 45/.test(await test.metrics.metrics()),
      '45 connections are counted',
    );
    await until(() => idle.filter((socket) => socket.destroyed).length === 45, 'they have ended');
    await test.client.probe(SETTINGS);
    assert.equal(await connections(), 256);
  });
});
