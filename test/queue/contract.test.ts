import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { jobData, keyId, parseJob } from '#src/queue/contract.ts';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { queueName, statusKey } from '#src/queue/queue-keys.ts';
import { UsageError } from '#src/runtime/flags.ts';

const claim = { kind: 'claim', uid: 'u1', namespace: 'ns', name: 'data' } as const;
const volume = { kind: 'volume', uid: 'u2', namespace: '', name: 'pvc-u1' } as const;

describe('parseJob', () => {
  it('reads what jobData wrote', () => {
    for (const key of [claim, volume])
      assert.deepEqual(parseJob(JSON.parse(JSON.stringify(jobData(key)))), {
        ok: true,
        key,
        facts: {},
      });
  });

  for (const [what, data] of [
    ['nothing', undefined],
    ['a text', 'claim'],
    ['no version', { ...claim }],
    ['a version that is no whole number', { v: 1.5, ...claim }],
    ['version 0', { v: 0, ...claim }],
    ['an unknown kind', { v: 1, ...claim, kind: 'node' }],
    ['no uid', { v: 1, ...claim, uid: '' }],
    ['no name', { v: 1, ...claim, name: undefined }],
    ['a claim without namespace', { v: 1, ...claim, namespace: '' }],
    ['a volume with a namespace', { v: 1, ...volume, namespace: 'ns' }],
    ['a kind in a list', { v: 1, ...claim, kind: ['claim'] }],
  ] as const) {
    it(`refuses ${what}`, () => {
      const parsed = parseJob(data);
      assert.equal(parsed.ok, false);
      assert.equal(!parsed.ok && parsed.isNewer, false);
    });
  }
});

describe('names', () => {
  it('begin with the prefix in braces, so that all keys are in one slot of a cluster', () => {
    assert.equal(keyPrefix('csi'), '{csi}');
    assert.equal(statusKey('csi', 'd.example', 'u1'), '{csi}:last-run:d.example:u1');
    assert.equal(queueName('claim', 'd.example'), 'claims.d.example');
    assert.equal(queueName('volume', 'd.example'), 'volumes.d.example');
    assert.equal(keyId(claim), 'claim/u1');
  });

  it('refuse a prefix that would make keys ambiguous', () => {
    for (const prefix of ['', '{csi}', 'a:b', 'a b', 'x'.repeat(65)])
      assert.throws(() => keyPrefix(prefix), UsageError);
  });
});
