import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { memberAt, textAt } from '../../../sandbox/api/json-value.ts';
import { openSandboxHttp, type SandboxHttp } from '../../harness/sandbox-http.ts';

const MAPS = '/api/v1/namespaces/default/configmaps';

describe('injected faults', () => {
  let http: SandboxHttp;
  before(async () => {
    http = await openSandboxHttp();
  });
  afterEach(() => http.api.faults.clear());
  after(() => http.close());

  for (const [code, reason] of [
    [409, 'Conflict'],
    [410, 'Expired'],
    [500, 'InternalError'],
  ] as const) {
    it(`answer ${code} without handling the request, the given number of times`, async () => {
      http.api.faults.inject({
        action: { kind: 'status', code },
        verb: 'list',
        plural: 'configmaps',
        times: 2,
      });
      assert.equal((await http.call('GET', '/api/v1/namespaces/default/secrets')).code, 200);
      for (let i = 0; i < 2; i += 1) {
        const answer = await http.call('GET', MAPS);
        assert.deepEqual([answer.code, memberAt(answer.body, 'reason')], [code, reason]);
      }
      assert.equal((await http.call('GET', MAPS)).code, 200);
    });
  }

  it('can answer 429 with Retry-After', async () => {
    http.api.faults.inject({ action: { kind: 'status', code: 429, retryAfterSeconds: 2 } });
    const answer = await http.call('GET', MAPS);
    assert.deepEqual([answer.code, answer.headers['retry-after']], [429, '2']);
    assert.equal(memberAt(answer.body, 'details', 'retryAfterSeconds'), 2);
  });

  it('drop the answer of a completed write', async () => {
    http.api.faults.inject({ action: { kind: 'lose-answer' }, verb: 'create' });
    await assert.rejects(http.call('POST', MAPS, { body: { metadata: { name: 'lost' } } }), {
      code: 'ECONNRESET',
    });
    assert.equal((await http.call('GET', `${MAPS}/lost`)).code, 200);
  });

  it('close the connection without handling the request', async () => {
    http.api.faults.inject({ action: { kind: 'reset' }, verb: 'create' });
    await assert.rejects(http.call('POST', MAPS, { body: { metadata: { name: 'never' } } }), {
      code: 'ECONNRESET',
    });
    assert.equal((await http.call('GET', `${MAPS}/never`)).code, 404);
  });

  it('delay an answer', async () => {
    http.api.faults.inject({ action: { kind: 'delay', delayMs: 30 }, name: 'lost' });
    const startedMs = performance.now();
    await http.call('GET', `${MAPS}/lost`);
    assert.ok(performance.now() - startedMs >= 29);
  });

  it('can be cancelled', async () => {
    const cancel = http.api.faults.inject({
      action: { kind: 'status', code: 500 },
      times: Number.POSITIVE_INFINITY,
    });
    assert.equal((await http.call('GET', MAPS)).code, 500);
    cancel();
    assert.equal((await http.call('GET', MAPS)).code, 200);
  });
});

describe('request counts', () => {
  it('include refused requests, by verb and resource', async () => {
    const http = await openSandboxHttp();
    await http.call('POST', MAPS, { body: { metadata: { name: 'a' } } });
    await http.call('POST', MAPS, { body: { metadata: { name: 'a' } } });
    await http.call('GET', `${MAPS}/a`);
    await http.call('GET', MAPS);
    await http.call('PATCH', '/api/v1/persistentvolumes/p/status', {
      body: {},
      headers: { 'content-type': 'application/merge-patch+json' },
    });
    assert.deepEqual(http.api.requests.snapshot(), {
      'create configmaps': 2,
      'get configmaps': 1,
      'list configmaps': 1,
      'patch persistentvolumes/status': 1,
    });
    http.api.requests.reset();
    assert.deepEqual(http.api.requests.snapshot(), {});
    assert.equal(textAt((await http.call('GET', '/version')).body, 'minor'), '36');
    assert.deepEqual(http.api.requests.snapshot(), {});
    await http.close();
  });
});
