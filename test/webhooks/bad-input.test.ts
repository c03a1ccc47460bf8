import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { readEvents } from '#src/webhooks/read-events.ts';
import { readAdmissionReview } from '#src/webhooks/admission-server.ts';
import { catchProblem } from '#src/webhooks/problem.ts';
import { connectTo, isClosed } from '../harness/raw-http.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { seeded } from '../harness/seeded.ts';
import { until } from '../harness/until.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import { fuzzBody, fuzzHeaders } from './fuzz.ts';
import { CLAIM_NOTICE, WATCH_EVENT } from './fixtures.ts';

const EVENT = JSON.stringify(WATCH_EVENT);
/** Tokens of senders that send one event each. */
const GOOD = Array.from({ length: 10 }, (_, n) => `good-token-0123456789-${n}`);

describe('fuzzed events', () => {
  it('are understood, ignored, or refused with a 4xx that names a field: 10,000 of them', () => {
    const random = seeded(15);
    const seen = new Map<string, number>();
    for (let n = 0; n < 10_000; n += 1) {
      const read = catchProblem(() => readEvents(fuzzHeaders(random), fuzzBody(random)));
      const events = 'problem' in read ? [read] : read.value;
      for (const event of events) {
        const kind = 'problem' in event ? 'problem' : event.verdict.kind;
        seen.set(kind, (seen.get(kind) ?? 0) + 1);
        if (!('problem' in event)) continue;
        assert.ok([400, 413, 415].includes(event.problem.status));
        assert.ok(event.problem.field !== undefined && event.problem.field !== '');
      }
    }
    for (const kind of ['notice', 'ignored', 'problem'])
      assert.ok((seen.get(kind) ?? 0) > 100, kind);
  });

  it('never make a notice whose name could be a path', () => {
    const random = seeded(16);
    for (let n = 0; n < 5_000; n += 1) {
      const read = catchProblem(() => readEvents(fuzzHeaders(random), fuzzBody(random)));
      for (const event of 'problem' in read ? [] : read.value)
        if ('verdict' in event && event.verdict.kind === 'notice')
          assert.match(
            `${event.verdict.notice.namespace}/${event.verdict.notice.name}`,
            /^[a-z0-9-]*\/[a-z0-9.-]+$/,
          );
    }
  });

  it('are answered or refused as admission reviews', () => {
    const random = seeded(17);
    for (let n = 0; n < 5_000; n += 1) {
      const read = catchProblem(() => readAdmissionReview(fuzzBody(random)));
      if ('problem' in read) assert.equal(read.problem.status, 400);
    }
  });
});

describe('while others send what is bad', () => {
  let redis: TestRedis;
  let server: WebhookServer;
  let folder: string;
  const sockets: Socket[] = [];
  let good = -1;
  before(async () => {
    redis = await startTestRedis();
    folder = await mkdtemp(join(tmpdir(), 'sutler-bad-'));
    const tokens = join(folder, 'tokens');
    const floods = Array.from({ length: 100 }, (_, n) => `flood-token-0123456789-${n} flood-${n}`);
    await writeFile(tokens, [...GOOD, ...floods].join('\n'));
    server = await startWebhooks(redis.url, [
      `--webhook-token-file=${tokens}`,
      '--webhook-signing-key-file=' + (await writeKeys(folder)),
      '--webhook-max-events-per-second=2',
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
    server.send(EVENT, { authorization: `Bearer ${GOOD[(good += 1)]}` });

  /** Sends a good event, and checks that it is taken soon. */
  const checkGood = async (): Promise<void> => {
    await server.notices();
    const startedMs = performance.now();
    assert.equal((await sendGood()).status, 202);
    assert.ok(performance.now() - startedMs < 5_000);
    assert.deepEqual(await server.notices(), [CLAIM_NOTICE]);
  };

  it('a notice of an allowed sender gets through a flood by forty senders', async () => {
    const over = new AbortController();
    const statuses = new Map<number, number>();
    const flood = async (n: number): Promise<void> => {
      const headers = { authorization: `Bearer flood-token-0123456789-${n}` };
      while (!over.signal.aborted) {
        const { status } = await server.send(n % 2 === 0 ? EVENT : '{"type":', headers);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    };
    const floods = Array.from({ length: 40 }, (_, n) => flood(n));
    await until(() => (statuses.get(429) ?? 0) > 20, 'some are refused');
    for (let n = 0; n < 2; n += 1) assert.equal((await sendGood()).status, 202);
    over.abort();
    await Promise.all(floods);
    assert.deepEqual(
      [...statuses.keys()].filter((status) => ![202, 400, 429].includes(status)),
      [],
    );
  });

  it('bodies that never end do not keep others out', async () => {
    const head =
      `POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer flood-token-0123456789-0\r\n` +
      'Content-Length: 2000000\r\n\r\n';
    const slow = await Promise.all(Array.from({ length: 15 }, open));
    for (const socket of slow) socket.write(head + 'a'.repeat(1_000));
    await checkGood();
    for (const socket of slow) socket.destroy();
  });

  it('unverified bodies take a limited memory', async () => {
    const timestamp = Math.floor(Date.now() / 1000);
    const head =
      `POST /events HTTP/1.1\r\nHost: x\r\nwebhook-id: a\r\nwebhook-timestamp: ${timestamp}\r\n` +
      'webhook-signature: v1,AAAA\r\nContent-Length: 2000000\r\n\r\n';
    const many = await Promise.all(Array.from({ length: 60 }, open));
    const before = process.memoryUsage().arrayBuffers;
    const part = Buffer.alloc(1_900_000, 'a');
    for (const socket of many) {
      socket.write(head);
      socket.write(part);
    }
    await checkGood();
    assert.ok(process.memoryUsage().arrayBuffers - before < 60_000_000);
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
