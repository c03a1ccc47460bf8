import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { ChangeNotice } from '#src/webhooks/notices.ts';
import { PlannedLooks } from '#src/ingest/notices/planned-looks.ts';

describe('planned looks', () => {
  let looks: PlannedLooks;
  beforeEach(() => {
    looks = new PlannedLooks();
  });
  const hint = (name: string, isEarly = false): ChangeNotice => ({
    resource: 'persistentvolumeclaims',
    namespace: 'n',
    name,
    isEarly,
  });
  const early = (name: string): ChangeNotice => hint(name, true);
  const takeAll = (): string[] => {
    const names: string[] = [];
    for (let target = looks.take(); target !== undefined; target = looks.take()) {
      names.push(target.name);
      looks.done(target);
    }
    return names;
  };
  /** The times at which a look is due, up to 10 s, in steps of 50 ms. */
  const dueTimes = (fromMs = 0): number[] => {
    const times: number[] = [];
    for (let nowMs = fromMs; nowMs <= 10_000; nowMs += 50) {
      looks.collectDue(nowMs);
      if (takeAll().length > 0) times.push(nowMs);
    }
    return times;
  };

  it('look at each object once for hints that come together, in the order of the first', () => {
    for (const name of ['a', 'b', 'a', 'a']) looks.add(hint(name), 0);
    assert.deepEqual(takeAll(), ['a', 'b']);
  });

  it('look again at an object that a hint names while it is being read, when that has ended', () => {
    looks.add(hint('a'), 0);
    const running = looks.take();
    looks.add(hint('a'), 0);
    assert.equal(looks.take(), undefined);
    assert.ok(running);
    looks.done(running);
    assert.deepEqual(takeAll(), ['a']);
  });

  it('look 100 ms, 1 s and 5 s after an early hint', () => {
    looks.add(early('a'), 0);
    assert.deepEqual(dueTimes(), [100, 1_000, 5_000]);
    assert.equal(looks.planned, 0);
  });

  it('are not put off for ever by early hints one after the other', () => {
    for (let nowMs = 0; nowMs <= 400; nowMs += 50) looks.add(early('a'), nowMs);
    assert.deepEqual(dueTimes(), [100, 1_400, 5_400]);
  });

  it('drop early hints for more than 10,000 objects, and only those', () => {
    for (let i = 0; i < 10_000; i += 1) assert.ok(looks.add(early(`a${i}`), 0));
    assert.equal(looks.add(early('b'), 0), false);
    assert.ok(looks.add(early('a1'), 0), 'one that is planned already');
    assert.ok(looks.add(hint('b'), 0));
  });

  it('repeat a look that failed after 1 s, 5 s and 30 s', () => {
    looks.add(hint('a'), 0);
    const target = looks.take();
    assert.ok(target && looks.failed(target, 0));
    assert.deepEqual(dueTimes(), [1_000, 5_000]);
    assert.equal(looks.planned, 1);
  });

  it('give up an object whose repeated looks have all failed, until the next hint', () => {
    const failAll = (): number[] => {
      const times: number[] = [];
      for (let nowMs = 0; nowMs <= 120_000; nowMs += 500) {
        looks.collectDue(nowMs);
        const target = looks.take();
        if (target === undefined) continue;
        times.push(nowMs);
        looks.failed(target, nowMs);
      }
      return times;
    };
    looks.add(hint('a'), 0);
    assert.deepEqual(failAll(), [0, 1_000, 5_000, 30_000]);
    looks.add(hint('a'), 0);
    assert.deepEqual(failAll(), [0, 1_000, 5_000, 30_000]);
  });

  it('look once at an object that may not be read, or again after 30 s where that is asked', () => {
    for (const name of ['a', 'b']) looks.add(early(name), 0);
    looks.collectDue(100);
    const [a, b] = [looks.take(), looks.take()];
    assert.ok(a && b);
    assert.equal(looks.refused(a, 0, false), false);
    assert.equal(looks.refused(b, 0, true), true);
    assert.deepEqual(dueTimes(), []);
    looks.collectDue(30_000);
    assert.deepEqual(takeAll(), ['b']);
  });

  it('are forgotten when this process does not lead any more', () => {
    looks.add(hint('a'), 0);
    looks.add(early('b'), 0);
    looks.clear();
    assert.deepEqual(dueTimes(), []);
  });
});
