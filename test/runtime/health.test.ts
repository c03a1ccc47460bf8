import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HealthChecks } from '#src/runtime/health.ts';

describe('HealthChecks', () => {
  it('lists checks in the order in which they were added', () => {
    const health = new HealthChecks();
    health.ready('b', () => undefined);
    health.ready('a', () => 'away');
    health.live('c', () => undefined);
    assert.deepEqual(health.answer('ready', ''), {
      code: 503,
      text: '[+]b ok\n[-]a: away\nnot ok\n',
    });
    assert.deepEqual(health.answer('live', ''), { code: 200, text: '[+]c ok\nok\n' });
  });

  it('replaces an earlier check of the same name, in its place', () => {
    const health = new HealthChecks();
    health.ready('kubernetes', () => 'waiting for the driver first');
    health.ready('redis', () => undefined);
    assert.equal(health.answer('ready', '').code, 503);
    health.ready('kubernetes', () => undefined);
    assert.equal(health.answer('ready', '').text, '[+]kubernetes ok\n[+]redis ok\nok\n');
  });

  it('answers for one check, and lists the names if there is no such check', () => {
    const health = new HealthChecks();
    health.ready('redis', () => 'down');
    health.ready('driver', () => undefined);
    assert.deepEqual(health.answer('ready', 'driver'), { code: 200, text: '[+]driver ok\nok\n' });
    assert.equal(health.answer('ready', 'redis').code, 503);
    assert.deepEqual(health.answer('ready', 'none'), {
      code: 404,
      text: 'no check none; there are: redis, driver\n',
    });
  });
});
