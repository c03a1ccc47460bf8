import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventCorrelator, type EventInput } from '#src/kube/event-correlation.ts';

const regarding = {
  kind: 'PersistentVolumeClaim',
  apiVersion: 'v1',
  namespace: 'ns',
  name: 'c',
  uid: 'u',
};
const event = (o: Partial<EventInput> = {}): EventInput => ({
  regarding,
  type: 'Warning',
  reason: 'ProvisioningFailed',
  message: 'no space',
  ...o,
});

type Verdict = ReturnType<EventCorrelator['take']>;
/** A correlator; events that it accepts count as written at once. */
function correlate(): (input: EventInput, nowMs: number) => Verdict {
  const correlator = new EventCorrelator(60_000);
  return (input, nowMs) => {
    const verdict = correlator.take(input, nowMs);
    if (typeof verdict === 'object')
      Object.assign(verdict, { writtenAtMs: nowMs, writtenCount: verdict.count });
    return verdict;
  };
}
const kindOf = (verdict: Verdict): string => (typeof verdict === 'string' ? verdict : 'write');
const kinds = (verdicts: readonly Verdict[]): string => verdicts.map(kindOf).join(' ');

describe('EventCorrelator', () => {
  it('writes new events, counts repeats, and writes the count after a minute', () => {
    const take = correlate();
    assert.equal(
      kinds([0, 1000, 3000, 7000].map((ms) => take(event(), ms))),
      'write coalesced coalesced coalesced',
    );
    const verdict = take(event(), 61_000);
    assert.ok(typeof verdict === 'object');
    assert.deepEqual([verdict.count, verdict.firstMs, verdict.lastMs], [5, 0, 61_000]);
  });

  it('writes a changed message at once; the earlier message counts as a repeat', () => {
    const take = correlate();
    assert.equal(
      kinds([take(event(), 0), take(event({ message: 'timeout' }), 1), take(event(), 2)]),
      'write write coalesced',
    );
  });

  it('keeps objects, types, reasons and components apart', () => {
    const take = correlate();
    const others = [
      event({ regarding: { ...regarding, uid: 'v' } }),
      event({ type: 'Normal' }),
      event({ reason: 'Other' }),
      event({ component: 'external-provisioner' }),
    ];
    assert.equal(
      kinds([event(), ...others].map((input) => take(input, 0))),
      'write write write write write',
    );
    assert.equal(
      take(event({ regarding: { ...regarding, resourceVersion: '5' } }), 1),
      'coalesced',
      'a changed object is the same object',
    );
  });

  it('combines messages of one reason from the tenth on', () => {
    const take = correlate();
    const verdicts = Array.from({ length: 12 }, (_, i) =>
      take(event({ message: `request ${i} failed` }), i),
    );
    assert.equal(kinds(verdicts), `${'write '.repeat(10)}coalesced coalesced`);
    const last = verdicts[9];
    assert.ok(typeof last === 'object');
    assert.deepEqual(
      [last.message, last.count],
      ['(combined from similar events): request 11 failed', 3],
    );
    const afterwards = take(event({ message: 'request 12 failed' }), 700_000);
    assert.ok(
      typeof afterwards === 'object' && afterwards.message === 'request 12 failed',
      'ten minutes later it starts over',
    );
  });

  it('goes on combining while messages come every few minutes', () => {
    const take = correlate();
    const everyFiveMinutes = Array.from({ length: 30 }, (_, i) =>
      take(event({ message: `request ${i} failed` }), i * 300_000),
    );
    const events = new Set(
      everyFiveMinutes.flatMap((verdict) => (typeof verdict === 'object' ? [verdict] : [])),
    );
    assert.equal(events.size, 10);
  });

  it('allows 25 writes per object, then one every five minutes', () => {
    const take = correlate();
    const verdicts = Array.from({ length: 30 }, (_, i) => take(event({ reason: `R${i}` }), 0));
    assert.equal(verdicts.filter((verdict) => typeof verdict === 'object').length, 25);
    assert.equal(verdicts.at(-1), 'dropped-spam');
    assert.equal(
      kindOf(take(event({ regarding: { ...regarding, uid: 'v' } }), 0)),
      'write',
      'others are not concerned',
    );
    assert.equal(
      kinds([
        take(event({ reason: 'X' }), 299_000),
        take(event({ reason: 'X' }), 301_000),
        take(event({ reason: 'Y' }), 302_000),
      ]),
      'dropped-spam write dropped-spam',
    );
  });

  it('cuts very long messages', () => {
    const verdict = correlate()(event({ message: 'x'.repeat(1_000_000) }), 0);
    assert.ok(typeof verdict === 'object');
    assert.equal(verdict.message, `${'x'.repeat(1_000)}… (1000000 characters)`);
  });

  it('distinguishes long messages that begin alike', () => {
    const take = correlate();
    const long = 'x'.repeat(500);
    assert.equal(
      kinds([take(event({ message: `${long}1` }), 0), take(event({ message: `${long}2` }), 1)]),
      'write write',
    );
    assert.equal(take(event({ message: `${long}1` }), 2), 'coalesced');
  });
});
