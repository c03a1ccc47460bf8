import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ClaimCopyReader } from '#src/jobs/claim/claim-copy.ts';
import { type ClaimCopy, sealedCopy } from '#src/queue/contract.ts';
import { parseRecordKeys, type RecordKeys, sealOf } from '#src/records/record-seal.ts';
import { aClaim } from '../../volumes/builders.ts';

const claim = aClaim();
const { uid, namespace = '', name } = claim.metadata;
const key = { kind: 'claim', uid, namespace, name } as const;
const place = { prefix: 'csi', driver: 'd.example' };
const keys = parseRecordKeys(`${'k'.repeat(32)}\n`);
const others = parseRecordKeys(`${'o'.repeat(32)}\n`);

/** The claim that a worker takes from a copy. */
function read(
  change: Partial<ClaimCopy>,
  o: {
    readonly keys?: RecordKeys;
    readonly sealedWith?: RecordKeys;
    readonly isAlive?: boolean;
  } = {},
) {
  const plain = { watch: 'w', claim: JSON.stringify(claim), ...change };
  const seal = sealOf(o.sealedWith, sealedCopy({ ...place, uid, ...plain }));
  const life = { isAlive: () => Promise.resolve(o.isAlive ?? true) };
  const copies = new ClaimCopyReader(life, place, () => o.keys);
  return copies.claimOf(key, { seal, ...plain });
}

describe('the copy of a claim in a job', () => {
  it('is used while the watch that has shown it lives', async () => {
    assert.deepEqual(await read({}), JSON.parse(JSON.stringify(claim)));
    assert.equal(await read({}, { isAlive: false }), undefined);
  });

  it('is not used where it is that of another claim', async () => {
    for (const metadata of [{ uid: 'other' }, { namespace: 'other' }, { name: 'other' }])
      assert.equal(await read({ claim: JSON.stringify(aClaim({ metadata })) }), undefined);
  });

  it('is not used where it can’t be read', async () => {
    for (const text of ['', '{', 'null', '[]', '{"metadata":{}}'])
      assert.equal(await read({ claim: text }), undefined, text);
  });

  it('needs a seal where the worker has a key', async () => {
    assert.notEqual(await read({}, { keys, sealedWith: keys }), undefined);
    assert.equal(await read({}, { keys }), undefined);
    assert.equal(await read({}, { keys, sealedWith: others }), undefined);
  });

  it('has a seal for its text and its watch alone', async () => {
    const seal = sealOf(keys, sealedCopy({ ...place, uid, watch: 'w', claim: 'text' }));
    assert.equal(await read({ seal }, { keys }), undefined);
    const ofOther = sealOf(
      keys,
      sealedCopy({ ...place, uid, watch: 'other', claim: JSON.stringify(claim) }),
    );
    assert.equal(await read({ seal: ofOther }, { keys }), undefined);
  });
});
