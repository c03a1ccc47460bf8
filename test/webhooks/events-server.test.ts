import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { request } from 'undici';
import { createLogger } from '#src/runtime/log.ts';
import { sendRaw, statusesIn } from '../harness/raw-http.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import { CLAIM, CLAIM_NOTICE, CLAIM_REFERENCE, STRUCTURED, WATCH_EVENT } from './fixtures.ts';

const KEY = Buffer.from('a key that has thirty-two bytes!');
const TOKEN = 'token-of-a-sender-012345';
const EVENT = JSON.stringify(WATCH_EVENT);
const JSON_TYPE = { 'content-type': 'application/json' };
const CLOUD_EVENT = { 'content-type': 'application/cloudevents+json' };
const BATCH = { 'content-type': 'application/cloudevents-batch+json' };

/** Headers as the library of Standard Webhooks signs. */
function sign(body: string, id: string): Record<string, string> {
  const atMs = Date.now();
  const signature = new Webhook(KEY, { format: 'raw' }).sign(id, new Date(atMs), body);
  return {
    ...JSON_TYPE,
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(atMs / 1_000)),
    'webhook-signature': signature,
  };
}

describe('POST /events on loopback, without authentication', () => {
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

  it('answers 202 once the notice is stored, which has nothing but the name of the object', async () => {
    const answer = await server.send(EVENT);
    assert.equal(answer.status, 202);
    assert.deepEqual(answer.json, { accepted: 1, ignored: 0, duplicates: 0 });
    assert.deepEqual(await server.notices(), [CLAIM_NOTICE]);
    const entries = await redis.redis.xrevrange('{csi}:notices', '+', '-', 'COUNT', 1);
    assert.equal(
      entries[0]?.[1].join(' '),
      'resource persistentvolumeclaims namespace team-a name data-web-0',
    );
  });

  it('answers 202 to what is ignored, and stores no notice', async () => {
    const pod = { type: 'ADDED', object: { ...CLAIM, kind: 'Pod' } };
    const answer = await server.send(JSON.stringify(pod));
    assert.deepEqual(answer.json, { accepted: 0, ignored: 1, duplicates: 0 });
    assert.deepEqual(await server.notices(), []);
  });

  it('accepts a repeated event once', async () => {
    const event = JSON.stringify({ ...STRUCTURED, id: 'twice' });
    await server.send(event, CLOUD_EVENT);
    const answer = await server.send(event, CLOUD_EVENT);
    assert.equal(answer.status, 202);
    assert.deepEqual(answer.json, { accepted: 0, ignored: 0, duplicates: 1 });
    assert.deepEqual(await server.notices(), [CLAIM_NOTICE]);
  });

  it('accepts the valid members of a batch, and reports the others by index', async () => {
    const members = [{ ...STRUCTURED, id: 'b1' }, 5, { ...STRUCTURED, id: 'b1' }];
    const answer = await server.send(JSON.stringify(members), BATCH);
    assert.equal(answer.status, 202);
    const { problems, ...counts } = answer.json ?? {};
    assert.deepEqual(counts, { accepted: 1, ignored: 0, duplicates: 1 });
    assert.match(JSON.stringify(problems), /^\[\{"index":1,.*"field":"\[1\]"\}\]$/);
  });

  it('refuses with a problem that names the field', async () => {
    const event = { ...STRUCTURED, data: { ...CLAIM_REFERENCE, name: undefined } };
    const answer = await server.send(JSON.stringify(event), CLOUD_EVENT);
    assert.equal(answer.status, 400);
    assert.equal(answer.headers['content-type'], 'application/problem+json');
    assert.deepEqual(Object.keys(answer.json ?? {}), [
      'type',
      'title',
      'status',
      'detail',
      'field',
    ]);
    assert.equal(answer.json?.['field'], 'data.name');
  });

  it('refuses a body of 10 MiB, and the client sees why', async () => {
    const answer = await server.send(Buffer.alloc(10 * 1024 * 1024, 'a'));
    assert.equal(answer.status, 413);
    assert.equal(answer.json?.['field'], 'body');
  });

  it('refuses such a body without a Content-Length too', async () => {
    const part = Buffer.alloc(64 * 1024, 'a');
    const parts = async function* (): AsyncGenerator<Buffer> {
      for (let n = 0; n < 160; n += 1) yield part;
    };
    const answer = await request(server.events, { method: 'POST', body: Readable.from(parts()) });
    assert.equal(answer.statusCode, 413);
    await answer.body.dump();
  });

  it('answers the OPTIONS request of a CloudEvents sender', async () => {
    const headers = { 'WebHook-Request-Origin': 'events.example' };
    const answer = await request(server.events, { method: 'OPTIONS', headers });
    assert.equal(answer.statusCode, 204);
    assert.equal(answer.headers['webhook-allowed-origin'], '*');
    assert.equal(answer.headers['webhook-allowed-rate'], '*');
  });

  for (const [method, path, status] of [
    ['GET', '/events', 405],
    ['OPTIONS', '/events', 405],
    ['POST', '/', 404],
    ['POST', '/admission', 404],
    ['POST', '/Events', 404],
  ] as const)
    it(`answers ${method} ${path} with ${status}`, async () => {
      const answer = await request(new URL(path, server.events), { method });
      assert.equal(answer.statusCode, status);
      if (status === 405) assert.match(String(answer.headers['allow']), /POST/);
      await answer.body.dump();
    });

  it('refuses an attribute that is repeated, whatever its case', async () => {
    const head = [
      'POST /events HTTP/1.1',
      'Host: x',
      'Connection: close',
      'Content-Type: application/json',
      'ce-specversion: 1.0',
      'ce-id: a',
      'Ce-Id: b',
      'ce-source: s',
      'ce-type: dev.knative.apiserver.ref.add',
      'Content-Length: 2',
    ].join('\r\n');
    const reply = await sendRaw(server.events, `${head}\r\n\r\n{}`);
    assert.deepEqual(statusesIn(reply), [400]);
    assert.match(reply, /"field":"ce-id"/);
  });

  it('counts what it received', async () => {
    const text = await server.metrics.metrics();
    assert.match(text, /sutler_webhook_events_total\{sender="network",result="notice"\} \d+/);
    assert.match(text, /sutler_webhook_requests_refused_total\{reason="too-large"\} \d+/);
    assert.match(text, /sutler_webhook_notices_total\{server="events",result="stored"\} \d+/);
  });
});

describe('POST /events with tokens and signatures', () => {
  let redis: TestRedis;
  let server: WebhookServer;
  let folder: string;
  const logged: string[] = [];
  before(async () => {
    redis = await startTestRedis();
    folder = await mkdtemp(join(tmpdir(), 'sutler-webhooks-'));
    const tokens = join(folder, 'tokens');
    const keys = join(folder, 'keys');
    await writeFile(tokens, `${TOKEN} knative\n`);
    await writeFile(keys, `whsec_${KEY.toString('base64')} forwarder\n`);
    const write = (line: string) => void logged.push(line);
    const log = createLogger({ name: 'test', verbosity: 4, format: 'text', write });
    const argv = [`--webhook-token-file=${tokens}`, `--webhook-signing-key-file=${keys}`];
    server = await startWebhooks(redis.url, argv, log);
  });
  after(async () => {
    await server.close();
    await redis.close();
    await rm(folder, { recursive: true });
  });
  beforeEach(async () => void (await server.notices()));

  const withToken = (token: string) => ({ ...JSON_TYPE, authorization: `Bearer ${token}` });

  it('refuses an event without a token with the same text as one with a wrong token', async () => {
    const without = await server.send(EVENT);
    const wrong = await server.send(EVENT, withToken('wrong-token-0123456789'));
    assert.equal(without.status, 401);
    assert.equal(without.headers['www-authenticate'], 'Bearer');
    assert.deepEqual(wrong.json, without.json);
    assert.deepEqual(await server.notices(), []);
  });

  it('refuses a wrong token before it reads the body', async () => {
    const head =
      'POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong-token-0123456789\r\n' +
      'Content-Length: 1000000\r\n\r\n';
    assert.deepEqual(statusesIn(await sendRaw(server.events, head)), [401]);
  });

  it('accepts a signed event, once', async () => {
    assert.equal((await server.send(EVENT, sign(EVENT, 'msg-1'))).status, 202);
    const { json } = await server.send(EVENT, sign(EVENT, 'msg-1'));
    assert.deepEqual(json, { accepted: 0, ignored: 0, duplicates: 1 });
    assert.deepEqual(await server.notices(), [CLAIM_NOTICE]);
  });

  it('checks a signature that comes with a token too', async () => {
    const headers = { ...sign('{}', 'msg-5'), authorization: `Bearer ${TOKEN}` };
    assert.equal((await server.send(EVENT, headers)).status, 401);
  });

  it('accepts a correct token while wrong ones arrive from the same address', async () => {
    const wrong = Array.from({ length: 60 }, () =>
      server.send(EVENT, withToken('wrong-0123456789')),
    );
    await Promise.race(wrong);
    assert.equal((await server.send(EVENT, withToken(TOKEN))).status, 202);
    assert.ok((await Promise.all(wrong)).every(({ status }) => status === 401));
  });

  it('logs neither bodies nor credentials', () => {
    const text = logged.join('');
    assert.match(text, /a webhook request was refused/);
    assert.doesNotMatch(text, /data-web-0|wrong-token|token-of-a-sender|whsec/);
  });
});

describe('POST /events without Redis', () => {
  it('answers 503 with Retry-After, takes the event later, and refuses when it stops', async () => {
    const redis = await startTestRedis();
    const server = await startWebhooks(redis.url);
    const event = JSON.stringify({ ...STRUCTURED, id: 'again' });
    redis.freeze();
    const frozen = await server.send(event, CLOUD_EVENT);
    redis.thaw();
    assert.equal(frozen.status, 503);
    assert.equal(frozen.headers['retry-after'], '2');
    await redis.kill();
    assert.equal((await server.send(event, CLOUD_EVENT)).status, 503);
    await redis.start();
    await until(async () => {
      const { json } = await server.send(event, CLOUD_EVENT);
      return json?.['accepted'] === 1;
    }, 'the event that was refused is taken with the same id');
    server.stop();
    assert.equal((await server.send(EVENT)).status, 503);
    await server.close();
    await redis.close();
  });
});
