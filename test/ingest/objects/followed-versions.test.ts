import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { FollowedVersions } from '#src/ingest/objects/followed-versions.ts';

describe('FollowedVersions', () => {
  let reads: string[];
  let told: string[];
  let followed: FollowedVersions;
  const follow = (...keys: string[]) => followed.follow(new Set(keys), () => undefined);
  beforeEach(() => {
    [reads, told] = [[], []];
    followed = new FollowedVersions(
      (key) => reads.push(key),
      (key) => told.push(key),
    );
  });

  it('reads each object once, unless its version is known', () => {
    followed.follow(new Set(['n/a', 'n/b']), (key) => (key === 'n/b' ? '7' : undefined));
    follow('n/a', 'n/b');
    assert.deepEqual([reads, followed.get('n/a'), followed.get('n/b')], [['n/a'], undefined, '7']);
    followed.wasRead('n/a', '8');
    assert.deepEqual([followed.get('n/a'), told], ['8', ['n/a']]);
  });

  it('prefers what the watch shows to what was read meanwhile', () => {
    follow('n/a', 'n/b');
    followed.changed('n/a', '9');
    followed.changed('n/b', '');
    followed.wasRead('n/a', '8');
    followed.wasRead('n/b', '8');
    assert.deepEqual([followed.get('n/a'), followed.get('n/b')], ['9', '']);
  });

  it('forgets what is not followed any more, and ignores what is not', () => {
    follow('n/a');
    follow();
    followed.wasRead('n/a', '8');
    followed.changed('n/b', '8');
    assert.deepEqual([followed.get('n/a'), followed.get('n/b'), told], [undefined, undefined, []]);
  });

  it('knows after a list that what it did not contain is gone, but for what is followed since', () => {
    follow('n/a', 'n/b');
    followed.wasRead('n/a', '1');
    followed.beginList();
    follow('n/a', 'n/b', 'n/c');
    followed.changed('n/b', '5');
    followed.endList();
    assert.deepEqual(
      ['n/a', 'n/b', 'n/c'].map((key) => followed.get(key)),
      ['', '5', undefined],
    );
  });

  it('reads what is followed while a list is under way, since what is kept may be older', () => {
    followed.beginList();
    followed.changed('pv', '6');
    followed.follow(new Set(['pv']), () => '5');
    assert.deepEqual([reads, followed.get('pv')], [['pv'], undefined]);
    followed.wasRead('pv', '6');
    followed.endList();
    assert.equal(followed.get('pv'), '6');
  });
});
