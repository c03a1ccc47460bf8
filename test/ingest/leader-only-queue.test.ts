import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import type { JobKey } from '#src/queue/contract.ts';

describe('LeaderOnlyQueue', () => {
  const key = (name: string): JobKey => ({ kind: 'claim', uid: name, namespace: 'n', name });
  let passed: string[] = [];
  let holds = true;
  let nowMs = 0;
  const queue = (): LeaderOnlyQueue =>
    new LeaderOnlyQueue(
      {
        ensureQueued: ({ name }) => void passed.push(`ensure ${name}`),
        enqueueNow: ({ name, claim = '' }) => void passed.push(`now ${name}${claim}`),
        promote: ({ name }) => void passed.push(`promote ${name}`),
      },
      30_000,
      { nowMs: () => nowMs, sleep: () => Promise.resolve() },
    );
  beforeEach(() => {
    passed = [];
    holds = true;
    nowMs = 0;
  });

  it('blocks as soon as the Lease is not held, even before block() is called', () => {
    const one = queue();
    one.ensureQueued(key('a'));
    one.allow(() => holds);
    one.ensureQueued(key('b'));
    holds = false;
    one.ensureQueued(key('c'));
    assert.deepEqual(passed, ['ensure b']);
    assert.ok(!one.isAllowing);
  });

  it('passes on the last kept enqueueNow or promote of each key, once, on allow()', () => {
    const one = queue();
    one.promote(key('a'));
    one.enqueueNow(key('b'));
    one.enqueueNow(key('a'));
    one.allow(() => false);
    assert.deepEqual(passed, [], 'the Lease is not held');
    one.allow(() => holds);
    one.allow(() => holds);
    assert.deepEqual(passed, ['now b', 'now a']);
  });

  it('keeps nothing that a key says of its claim, which may change meanwhile', () => {
    const one = queue();
    one.enqueueNow({ ...key('a'), claim: ' as it was' });
    one.allow(() => holds);
    assert.deepEqual(passed, ['now a']);
  });

  it('drops an enqueueNow or promote that is older than keepMs', () => {
    const one = queue();
    one.promote(key('a'));
    nowMs = 20_000;
    one.promote(key('b'));
    nowMs = 40_000;
    one.allow(() => holds);
    assert.deepEqual(passed, ['promote b']);
  });
});
