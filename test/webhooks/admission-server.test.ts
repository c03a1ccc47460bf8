import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { request } from 'undici';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import type { ChangeNotice } from '#src/webhooks/notices.ts';
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

  it('allows a request, and stores a notice after 0.1 s and again after 2 s', async () => {
    const startedMs = performance.now();
    const answer = await server.review(REVIEW_TEXT);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['content-type'], 'application/json');
    assert.deepEqual(answer.json?.['response'], { uid: 'call-1', allowed: true });
    for (const leastMs of [100, 2_000]) {
      const notices: ChangeNotice[] = [];
      await until(async () => notices.push(...(await server.notices())) > 0, 'a notice');
      assert.deepEqual(notices, [CLAIM_NOTICE]);
      assert.ok(performance.now() - startedMs >= leastMs);
    }
  });

  it('allows a request that needs no volume, and stores no notice', async () => {
    for (const change of [{ dryRun: true }, { object: null }, { name: '../x' }]) {
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

  it('answers 400 to a body that is no review', async () => {
    for (const body of ['', 'x', '{}', '{"kind":"AdmissionReview"}', review({ uid: 5 })]) {
      const answer = await server.review(body);
      assert.equal(answer.status, 400, body);
      assert.equal(answer.headers['content-type'], 'application/problem+json');
    }
  });

  it('takes a review of 7 MiB, and refuses one of 9 MiB', async () => {
    const filler = 'x'.repeat(3.5 * 1024 * 1024);
    const object = { metadata: { annotations: { filler } } };
    assert.equal((await server.review(review({ object, oldObject: object }))).status, 200);
    assert.equal((await server.review(Buffer.alloc(9 * 1024 * 1024, 'a'))).status, 413);
  });

  it('allows while Redis can not be reached, and counts the lost notice', async () => {
    const lost = async (): Promise<number> => {
      const text = await server.metrics.metrics();
      return Number(/sutler_admission_reviews_total\{result="lost"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    const before = await lost();
    redis.freeze();
    assert.equal((await server.review(REVIEW_TEXT)).status, 200);
    // Redis is given 5 s to take a notice.
    assert.equal(await lost(), before, 'the answer does not wait for Redis');
    await until(async () => (await lost()) > before, 'the notice is counted as lost', 10_000);
    redis.thaw();
  });

  it('allows while the process stops', async () => {
    server.stop();
    assert.equal((await server.review(REVIEW_TEXT)).status, 200);
  });
});
