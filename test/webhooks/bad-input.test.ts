import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { readEvents } from '#src/webhooks/read-events.ts';
import { readAdmissionReview } from '#src/webhooks/admission.ts';
import { orProblem, RequestProblem } from '#src/webhooks/problem.ts';
import { connectTo, isClosed, statusesIn } from '../harness/raw-http.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { seeded } from '../harness/seeded.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import { until } from '../harness/until.ts';
import { fuzzBody, fuzzHeaders } from './fuzz.ts';
import { CLAIM_NOTICE, WATCH_EVENT } from './fixtures.ts';

const EVENT = JSON.stringify(WATCH_EVENT);
const GOOD = 'good-token-0123456789';

describe('fuzzed events', () => {
  it('are understood, ignored, or refused with a 4xx that names a field: 10,000 of them', () => {
    const random = seeded(15);
    const seen = new Map<string, number>();
    for (let n = 0; n < 10_000; n += 1) {
      const read = orProblem(() => readEvents(fuzzHeaders(random), fuzzBody(random)));
      for (const event of read instanceof RequestProblem ? [read] : read) {
        const isProblem = event instanceof RequestProblem;
        const kind = isProblem
          ? 'problem'
          : typeof event.verdict === 'string'
            ? 'ignored'
            : 'notice';
        seen.set(kind, (seen.get(kind) ?? 0) + 1);
        if (!isProblem) continue;
        assert.ok([400, 413, 415].includes(event.status));
        assert.ok(event.field !== undefined && event.field !== '');
      }
    }
    for (const kind of ['notice', 'ignored', 'problem'])
      assert.ok((seen.get(kind) ?? 0) > 100, kind);
  });

  it('never make a notice whose name could be a path', () => {
    const random = seeded(16);
    for (let n = 0; n < 5_000; n += 1) {
      const read = orProblem(() => readEvents(fuzzHeaders(random), fuzzBody(random)));
      for (const event of read instanceof RequestProblem ? [] : read)
        if (!(event instanceof RequestProblem) && typeof event.verdict !== 'string')
          assert.match(
            `${event.verdict.namespace}/${event.verdict.name}`,
            /^[a-z0-9-]*\/[a-z0-9.-]+$/,
          );
    }
  });

  it('are answered or refused as admission reviews', () => {
    const random = seeded(17);
    for (let n = 0; n < 5_000; n += 1) {
      const read = orProblem(() => readAdmissionReview(fuzzBody(random)));
      if (read instanceof RequestProblem) assert.equal(read.status, 400);
    }
  });
});

describe('while others send what is bad', () => {
  let redis: TestRedis;
  let server: WebhookServer;
  let folder: string;
  const sockets: Socket[] = [];
  before(async () => {
    redis = await startTestRedis();
    folder = await mkdtemp(join(tmpdir(), 'sutler-bad-'));
    const tokens = join(folder, 'tokens');
    await writeFile(tokens, `${GOOD}\nslow-token-0123456789`);
    server = await startWebhooks(redis.url, [
      `--webhook-token-file=${tokens}`,
      '--webhook-signing-key-file=' + (await writeKeys(folder)),
    ]);
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    await server.close();
    await redis.close();
    await rm(folder, { recursive: true });
  });

  const open = async (): Promise<Socket> => {
    const socket = await connectTo(server.events);
    sockets.push(socket);
    socket.on('data', () => undefined);
    return socket;
  };
  const sendGood = (): Promise<{ readonly status: number }> =>
    server.send(EVENT, { authorization: `Bearer ${GOOD}` });

  /** Sends a good event, and checks that it is taken. */
  const checkGood = async (): Promise<void> => {
    await server.notices();
    assert.equal((await sendGood()).status, 202);
    assert.deepEqual(await server.notices(), [CLAIM_NOTICE]);
  };

  it('bodies that never end do not keep others out', async () => {
    const head =
      `POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer slow-token-0123456789\r\n` +
      'Content-Length: 2000000\r\n\r\n';
    const slow = await Promise.all(Array.from({ length: 15 }, open));
    for (const socket of slow) socket.write(head + 'a'.repeat(1_000));
    await checkGood();
    // The server ends each after 10 s.
    assert.ok(slow.every(({ readyState }) => readyState === 'open'));
    for (const socket of slow) socket.destroy();
  });

  it('of large unverified bodies, those that begin first are refused, and others are not', async () => {
    const timestamp = Math.floor(Date.now() / 1000);
    const head =
      `POST /events HTTP/1.1\r\nHost: x\r\nwebhook-id: a\r\nwebhook-timestamp: ${timestamp}\r\n` +
      'webhook-signature: v1,AAAA\r\nContent-Length: 2000000\r\n\r\n';
    const many = await Promise.all(Array.from({ length: 60 }, open));
    let answers = '';
    const part = Buffer.alloc(1_900_000, 'a');
    for (const socket of many) {
      socket.on('data', (data: Buffer) => (answers += `${data.toString('latin1')}\n`));
      socket.write(head);
      socket.write(part);
    }
    await checkGood();
    // Eight of them take 16 MiB together.
    await until(() => statusesIn(answers).length >= 52, '52 bodies are refused');
    assert.deepEqual(new Set(statusesIn(answers)), new Set([503]));
    for (const socket of many) socket.destroy();
  });

  it('more connections than there may be do not keep others out', async () => {
    const many = await Promise.all(Array.from({ length: 300 }, open));
    for (const socket of many) socket.write('POST /events HTTP/1.1\r\nHost: x\r\nX: ');
    await checkGood();
    for (const socket of many) socket.destroy();
  });

  it('pipelined requests end their connection only', async () => {
    const socket = await open();
    const request = 'POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';
    const closed = isClosed(socket);
    socket.write(request.repeat(10_000));
    await checkGood();
    await closed;
  });
});

async function writeKeys(folder: string): Promise<string> {
  const path = join(folder, 'keys');
  await writeFile(path, Buffer.alloc(32, 'k').toString('base64'));
  return path;
}
