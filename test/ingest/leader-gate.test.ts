import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { Gate } from '#src/ingest/leader-gate.ts';
import type { JobKey } from '#src/queue/contract.ts';

describe('Gate', () => {
  const key = (name: string): JobKey => ({ kind: 'claim', uid: name, namespace: 'n', name });
  let passed: string[] = [];
  let holds = true;
  let nowMs = 0;
  const gate = (): Gate =>
    new Gate(
      {
        touch: ({ name }, o) => void passed.push(o?.kick === true ? `kick ${name}` : `touch ${name}`),
        wake: ({ name }) => void passed.push(`wake ${name}`),
      },
      { holdsLease: () => holds, keepMs: 30_000, clock: { nowMs: () => nowMs, sleep: () => Promise.resolve() } },
    );
  beforeEach(() => {
    passed = [];
    holds = true;
    nowMs = 0;
  });

  it('is closed as soon as the lease is not held any more, whoever noticed', () => {
    const one = gate();
    one.touch(key('a'));
    one.open();
    one.touch(key('b'));
    holds = false;
    one.touch(key('c'));
    assert.deepEqual(passed, ['touch b']);
    assert.ok(!one.isOpen);
  });

  it('passes ends of waits on that came just before it was opened, once, the last of each key', () => {
    const one = gate();
    one.wake(key('a'));
    one.touch(key('b'), { kick: true });
    one.touch(key('a'), { kick: true });
    one.open();
    one.open();
    assert.deepEqual(passed, ['kick b', 'kick a']);
  });

  it('forgets ends of waits that are older than a change of leaders takes', () => {
    const one = gate();
    one.wake(key('a'));
    nowMs = 20_000;
    one.wake(key('b'));
    nowMs = 40_000;
    one.open();
    assert.deepEqual(passed, ['wake b']);
  });

  it('keeps ends of waits while it is opened without the lease', () => {
    const one = gate();
    one.wake(key('a'));
    holds = false;
    one.open();
    assert.deepEqual(passed, []);
    holds = true;
    one.open();
    assert.deepEqual(passed, ['wake a']);
  });
});
