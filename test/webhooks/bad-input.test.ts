import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import * as fc from 'fast-check';
import { readEvents } from '#src/webhooks/read-events.ts';
import { orProblem, RequestProblem } from '#src/webhooks/problem.ts';
import { connectTo, statusesIn } from '../harness/raw-http.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import { until } from '../harness/until.ts';
import {
  ARGO,
  BATCH_HEADERS,
  BINARY,
  CLAIM,
  CLAIM_NOTICE,
  CLAIM_REFERENCE,
  JSON_HEADERS,
  STRUCTURED,
  STRUCTURED_HEADERS,
  WATCH_EVENT,
} from './fixtures.ts';

const EVENT = JSON.stringify(WATCH_EVENT);
const GOOD = 'good-token-0123456789';

/** Bodies of all formats, as they are and with one value of theirs replaced. */
const bodies = fc
  .tuple(
    fc.constantFrom(WATCH_EVENT, ARGO, STRUCTURED, [STRUCTURED], CLAIM, CLAIM_REFERENCE),
    fc.nat(30),
    fc.oneof(
      fc.jsonValue(),
      fc.constantFrom('../x', 'Pod', '\ud800', '__proto__', 'x'.repeat(300)),
    ),
  )
  .map(([body, index, odd]) => {
    let at = 0;
    return JSON.stringify(body).replaceAll(/(?<=:)("[^"]*"|null|\{\})/g, (value) =>
      at++ === index ? JSON.stringify(odd) : value,
    );
  });
const headers = fc.constantFrom({}, JSON_HEADERS, STRUCTURED_HEADERS, BATCH_HEADERS, BINARY, {
  'content-type': ['%', '"'],
});

describe('an event with odd values', () => {
  it('is a notice with a legal name, ignored, or refused with a 4xx that names a field', () => {
    const seen = { notice: 0, ignored: 0, refused: 0 };
    fc.assert(
      fc.property(headers, bodies, (sent, body) => {
        const read = orProblem(() => readEvents(sent, Buffer.from(body)));
        for (const event of read instanceof RequestProblem ? [read] : read) {
          if (event instanceof RequestProblem) {
            seen.refused += 1;
            assert.ok([400, 413, 415].includes(event.status));
            assert.notEqual(event.field ?? '', '');
          } else if (typeof event.verdict === 'string') seen.ignored += 1;
          else {
            seen.notice += 1;
            const { namespace, name } = event.verdict;
            assert.match(`${namespace}/${name}`, /^[a-z0-9-]*\/[a-z0-9.-]+$/);
          }
        }
      }),
      { seed: 15, numRuns: 5_000 },
    );
    assert.ok(Math.min(...Object.values(seen)) > 20, JSON.stringify(seen));
  });
});

describe('the events server during an attack', () => {
  let redis: TestRedis;
  let server: WebhookServer;
  let folder: string;
  const sockets: Socket[] = [];
  before(async () => {
    redis = await startTestRedis();
    folder = await mkdtemp(join(tmpdir(), 'sutler-bad-'));
    const tokens = join(folder, 'tokens');
    await writeFile(tokens, GOOD);
    const keys = join(folder, 'keys');
    await writeFile(keys, Buffer.alloc(32, 'k').toString('base64'));
    server = await startWebhooks(redis.url, [
      `--webhook-token-file=${tokens}`,
      `--webhook-signing-key-file=${keys}`,
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
  /** Sends a good event, and checks that it is taken. */
  const checkGood = async (): Promise<void> => {
    await server.notices();
    const { status } = await server.send(EVENT, { authorization: `Bearer ${GOOD}` });
    assert.equal(status, 202);
    assert.deepEqual(await server.notices(), [CLAIM_NOTICE]);
  };

  it('refuses the oldest of too many large unverified bodies, and accepts a verified event', async () => {
    const timestamp = Math.floor(Date.now() / 1000);
    const head =
      `POST /events HTTP/1.1\r\nHost: x\r\nwebhook-id: a\r\nwebhook-timestamp: ${timestamp}\r\n` +
      'webhook-signature: v1,AAAA\r\nContent-Length: 2000000\r\n\r\n';
    const many = await Promise.all(Array.from({ length: 20 }, open));
    let answers = '';
    const part = Buffer.alloc(1_900_000, 'a');
    for (const socket of many) {
      socket.on('data', (data: Buffer) => (answers += `${data.toString('latin1')}\n`));
      socket.write(head);
      socket.write(part);
    }
    await checkGood();
    // Eight of them take 16 MiB together.
    await until(() => statusesIn(answers).length >= 12, '12 bodies are refused');
    assert.deepEqual(new Set(statusesIn(answers)), new Set([503]));
    for (const socket of many) socket.destroy();
  });

  it('accepts a verified event beside 300 open connections', async () => {
    const many = await Promise.all(Array.from({ length: 300 }, open));
    for (const socket of many) socket.write('POST /events HTTP/1.1\r\nHost: x\r\nX: ');
    await checkGood();
    for (const socket of many) socket.destroy();
  });
});
