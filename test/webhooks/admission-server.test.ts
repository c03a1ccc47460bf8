import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Agent, request } from 'undici';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { AdmissionServer } from '#src/webhooks/admission-server.ts';
import { webhookMetrics } from '#src/webhooks/metrics.ts';
import { NoticeWriter } from '#src/webhooks/notices.ts';
import { startWebhookServer } from '#src/webhooks/webhook-server.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import { CLAIM_NOTICE, REVIEW } from './fixtures.ts';

const REVIEW_TEXT = JSON.stringify(REVIEW);

function review(change: object): string {
  return JSON.stringify({ ...REVIEW, request: { ...REVIEW.request, ...change } });
}

describe('POST /admission', () => {
  let redis: TestRedis;
  let server: WebhookServer;
  before(async () => {
    redis = await startTestRedis();
    server = await startWebhooks(redis.url);
  });
  after(async () => {
    await server.close();
    await redis.close();
  });
  beforeEach(async () => void (await server.notices()));

  it('allows a request, and leaves an early notice', async () => {
    const answer = await server.review(REVIEW_TEXT);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['content-type'], 'application/json');
    assert.deepEqual(answer.json?.['response'], { uid: 'call-1', allowed: true });
    const notices = await server.notices();
    assert.deepEqual(notices, [{ ...CLAIM_NOTICE, isEarly: true }]);
  });

  it('allows what is odd, and leaves no notice', async () => {
    const odd = [
      { dryRun: true },
      { operation: 'CONNECT' },
      { object: null },
      { kind: { group: '', version: 'v1', kind: 'Pod' } },
      { name: '../x' },
    ];
    for (const change of odd) {
      const answer = await server.review(review(change));
      assert.deepEqual(answer.json?.['response'], { uid: 'call-1', allowed: true });
    }
    assert.deepEqual(await server.notices(), []);
  });

  it('ignores the query', async () => {
    const options = { method: 'POST', body: REVIEW_TEXT } as const;
    const answer = await request(`${server.admission}?timeout=1s`, options);
    assert.equal(answer.statusCode, 200);
    await answer.body.dump();
  });

  it('answers 400 to what it can not answer', async () => {
    for (const body of ['', 'x', '{}', '{"kind":"AdmissionReview"}', review({ uid: 5 })]) {
      const answer = await server.review(body);
      assert.equal(answer.status, 400, body);
      assert.equal(answer.headers['content-type'], 'application/problem+json');
    }
  });

  it('takes a review of 7 MiB', async () => {
    const filler = 'x'.repeat(3.5 * 1024 * 1024);
    const object = { metadata: { annotations: { filler } } };
    assert.equal((await server.review(review({ object, oldObject: object }))).status, 200);
  });

  it('refuses one of 9 MiB', async () => {
    const answer = await server.review(Buffer.alloc(9 * 1024 * 1024, 'a'));
    assert.equal(answer.status, 413);
  });

  it('allows while Redis can not be reached, and counts the lost notice', async () => {
    const lost = async (): Promise<number> => {
      const text = await server.metrics.metrics();
      return Number(/sutler_admission_reviews_total\{result="lost"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    const before = await lost();
    redis.freeze();
    const startedMs = performance.now();
    const answer = await server.review(REVIEW_TEXT);
    const tookMs = performance.now() - startedMs;
    assert.equal(answer.status, 200);
    // Redis is given 2 s to take a notice.
    assert.ok(tookMs < 1_900, `${tookMs} ms`);
    await until(async () => (await lost()) > before, 'the notice is counted as lost');
    redis.thaw();
  });

  it('allows while the process stops', async () => {
    server.stop();
    assert.equal((await server.review(REVIEW_TEXT)).status, 200);
  });
});

describe('notices of callers without a certificate', () => {
  it('are 1,000 at once and 100 a second, while all requests are allowed', async () => {
    let nowMs = 0;
    let stored = 0;
    const append = (): Promise<void> => {
      stored += 1;
      return Promise.resolve();
    };
    const registry = new Registry();
    const metrics = webhookMetrics(registry);
    const admission = new AdmissionServer({
      writer: new NoticeWriter({ append, trouble: () => undefined }),
      maxEventsPerSecond: 1_000,
      metrics,
      clock: { nowMs: () => nowMs, sleep: () => Promise.resolve() },
      log: silentLog,
    });
    const server = await startWebhookServer({
      route: { path: '/admission', answer: (...asked) => admission.answer(...asked) },
      flag: 'admission-address',
      address: '127.0.0.1:0',
      tls: undefined,
      requiresCertificate: false,
    });
    const dispatcher = new Agent({ connections: 20 });
    const ask = async (count: number): Promise<void> => {
      const statuses = Array.from({ length: count }, async () => {
        const answer = await request(server.url, { dispatcher, method: 'POST', body: REVIEW_TEXT });
        await answer.body.dump();
        return answer.statusCode;
      });
      assert.deepEqual([...new Set(await Promise.all(statuses))], [200]);
    };
    const lost = async (count: number): Promise<void> => {
      const line = new RegExp(`notices_total\\{server="admission",result="lost"\\} ${count}\n`);
      await until(async () => line.test(await registry.metrics()), `${count} are lost`);
    };
    await ask(1_200);
    await lost(200);
    assert.equal(stored, 1_000);
    nowMs += 1_000;
    await ask(150);
    await lost(250);
    assert.equal(stored, 1_100);
    await dispatcher.destroy();
    await server.close();
  });
});
