import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { request } from 'undici';
import { Closers } from '#src/runtime/closers.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { openHttpEndpoint } from '#src/runtime/http.ts';
import { silentLog } from '#src/runtime/log.ts';
import { createRegistry } from '#src/runtime/metrics.ts';

describe('HTTP endpoint', () => {
  const closers = new Closers();
  const start = async (httpEndpoint: string, health = new HealthChecks()): Promise<string> => {
    const logging = { v: 0, loggingFormat: 'text' };
    const flags = { ...logging, httpEndpoint, metricsAddress: '', metricsPath: '/metrics' };
    const metrics = createRegistry();
    const { http = '' } = await openHttpEndpoint({
      flags,
      health,
      metrics,
      log: silentLog,
      closers,
    });
    return http;
  };
  let url: string;
  let wrong: string | undefined;
  const get = async (path: string) => {
    const { statusCode, body } = await request(`${url}${path}`);
    return { code: statusCode, text: await body.text() };
  };

  before(async () => {
    const health = new HealthChecks();
    health.ready('redis', () => wrong);
    url = await start('127.0.0.1:0', health);
    health.ready('driver', () => undefined);
  });
  after(() => closers.close());

  it('answers /healthz with 200 when there is no check', async () =>
    assert.deepEqual(await get('/healthz'), { code: 200, text: 'ok\n' }));

  it('says in /readyz what is wrong, a line for each check, and answers for each alone', async () => {
    wrong = 'connection refused; start Redis';
    assert.deepEqual(await get('/readyz'), {
      code: 503,
      text: '[-]redis: connection refused; start Redis\n[+]driver ok\nnot ok\n',
    });
    assert.equal((await get('/readyz/driver')).code, 200);
    assert.equal((await get('/readyz/redis')).code, 503);
    assert.equal((await get('/readyz/none')).code, 404);
    wrong = undefined;
    assert.equal((await get('/readyz')).code, 200);
  });

  it('serves metrics, with the checks of /readyz that fail', async () => {
    wrong = 'down';
    const { text } = await get('/metrics');
    wrong = undefined;
    assert.match(text, /process_cpu_seconds_total/);
    assert.deepEqual(text.match(/^sutler_check_failed.*/gm), [
      'sutler_check_failed{check="redis"} 1',
    ]);
  });

  it('answers 404 elsewhere, also at the five paths of Go’s profiler (Q-51)', async () => {
    const profiler = ['', 'cmdline', 'profile', 'symbol', 'trace'].map(
      (name) => `/debug/pprof/${name}`,
    );
    for (const path of ['/nothing', ...profiler]) assert.equal((await get(path)).code, 404, path);
  });
});
