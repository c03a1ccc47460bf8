import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { claimPlanner } from '#src/ingest/open-work.ts';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim } from '#src/kube/objects.ts';
import type { KeyToQueue } from '#src/queue/contract.ts';
import { aClaim } from '../volumes/builders.ts';

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';

describe('a claim that is to get a job', () => {
  const uid = 'u1';
  const at = (node?: string): Claim =>
    aClaim({
      metadata: {
        uid,
        name: 'c',
        namespace: 'ns',
        annotations: node === undefined ? {} : { [SELECTED_NODE]: node },
      },
    });
  const keyWith = (claim: Claim): KeyToQueue => ({
    kind: 'claim',
    uid,
    namespace: 'ns',
    name: 'c',
    claim: JSON.stringify(claim),
  });
  /** Plans with a copy while the API server has `now`. */
  const plan = async (copy: Claim, now: Claim, servesOneNode: boolean, hasVolume = false) => {
    let reads = 0;
    const get = () => {
      reads += 1;
      return Promise.resolve(now);
    };
    const find = claimPlanner(
      { get } as unknown as Parameters<typeof claimPlanner>[0],
      servesOneNode ? 'n' : undefined,
      { classOf: () => undefined, hasVolume: (of) => hasVolume && of === uid },
    );
    const found = await find(keyWith(copy));
    return { needsNode: found?.needsNode, reads };
  };

  const NEEDS_NONE = { needsNode: false, reads: 0 };
  for (const [title, copy, now, servesOneNode, expected] of [
    [
      'needs no node if one was selected after its copy',
      at(),
      at('n'),
      true,
      { needsNode: false, reads: 1 },
    ],
    ['needs a node where none is selected', at(), at(), true, { needsNode: true, reads: 1 }],
    ['is not read where its copy names a node', at('n'), at('n'), true, NEEDS_NONE],
    ['is not read by a process that serves all nodes', at(), at(), false, NEEDS_NONE],
  ] as const)
    it(title, async () => assert.deepEqual(await plan(copy, now, servesOneNode), expected));

  it('gets none if its volume was written meanwhile', async () =>
    assert.equal((await plan(at(), at(), false, true)).needsNode, undefined));

  it('gets one although it has a volume, to release it as the source of a clone', async () => {
    const { metadata, ...others } = at();
    const deletionTimestamp = '2026-01-01T00:00:00Z';
    const finalizers = [CLONE_PROTECTION];
    const released = { ...others, metadata: { ...metadata, deletionTimestamp, finalizers } };
    assert.deepEqual(await plan(released, released, false, true), NEEDS_NONE);
  });
});
