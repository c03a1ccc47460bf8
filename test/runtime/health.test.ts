import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HealthChecks } from '#src/runtime/health.ts';

describe('HealthChecks with groups', () => {
  const withGroups = (): { health: HealthChecks; a: HealthChecks; b: HealthChecks } => {
    const health = new HealthChecks();
    health.ready('redis', () => undefined);
    const a = health.addGroup('a');
    const b = health.addGroup('b');
    for (const group of [a, b]) group.ready('driver', () => undefined);
    return { health, a, b };
  };

  it('is ready while one group is, and shows the trouble of the others', () => {
    const { health, a } = withGroups();
    a.ready('driver', () => 'away');
    assert.deepEqual(health.answer('ready', ''), {
      code: 200,
      text: '[+]redis ok\n[-]a/driver: away\n[+]b/driver ok\nok\n',
    });
  });

  it('is not ready when no group is, or a check outside of the groups fails', () => {
    const { health, a, b } = withGroups();
    a.ready('driver', () => 'away');
    b.ready('queues', () => 'stuck');
    assert.equal(health.answer('ready', '').code, 503);
    const other = withGroups().health;
    other.ready('redis', () => 'down');
    assert.equal(other.answer('ready', '').code, 503);
  });

  it('is not live when one group is not, since only a restart can mend it', () => {
    const { health, a } = withGroups();
    health.live('leader-election', () => undefined);
    a.live('leader-election', () => 'not renewed');
    assert.equal(health.answer('live', '').code, 503);
    assert.equal(health.answer('live', 'leader-election').code, 503);
  });

  it('answers for a group, for a check of it, and for a name in all groups', () => {
    const { health, b } = withGroups();
    b.ready('driver', () => 'away');
    assert.equal(health.answer('ready', 'a').text, '[+]a/driver ok\nok\n');
    assert.deepEqual(health.answer('ready', 'b'), {
      code: 503,
      text: '[-]b/driver: away\nnot ok\n',
    });
    assert.equal(health.answer('ready', 'b/driver').code, 503);
    assert.equal(health.answer('ready', 'driver').text, '[+]a/driver ok\n[-]b/driver: away\nok\n');
    assert.match(health.answer('ready', 'c').text, /there are: redis, a\/driver, b\/driver/);
  });

  it('shows notes on /readyz, of groups too, and is ready all the same', () => {
    const { health, a } = withGroups();
    let text: string | undefined = 'line 3 is wrong';
    health.note('driver-config', () => text);
    const { code, text: page } = health.answer('ready', '');
    assert.equal(code, 200);
    assert.match(page, /^\[!\]driver-config: line 3 is wrong$/m);
    a.note('gateway-clock', () => 'is 60 s ahead');
    assert.match(health.answer('ready', '').text, /^\[!\]a\/gateway-clock: is 60 s ahead$/m);
    text = undefined;
    assert.doesNotMatch(health.answer('ready', '').text, /driver-config/);
  });
});
