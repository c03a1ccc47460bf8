import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VolumeCapability_AccessMode_Mode as Mode } from '#src/csi/generated/csi_pb.ts';
import { volumeCapabilities } from '#src/volumes/plan.ts';
import { aClaim, aClass } from './builders.ts';
import { claimFor } from './plans.ts';

const [RWO, ROX, RWX, RWOP] = [
  'ReadWriteOnce',
  'ReadOnlyMany',
  'ReadWriteMany',
  'ReadWriteOncePod',
] as const;

const modes = (accessModes: readonly string[], hasMultiWriter: boolean) =>
  volumeCapabilities(claimFor(...accessModes), aClass(), { fsType: 'ext4', hasMultiWriter }).map(
    ({ accessMode }) => accessMode?.mode,
  );

/* Upstream's library maps a whole list of modes and refuses some lists. Its provisioner passes one
 * mode at a time, so that these refusals never occur; sutler does as the provisioner does. */
type Rows = readonly (readonly [string, readonly string[], readonly Mode[]])[];
const BASIC: Rows = [
  ['RWX (Q-01, B-05)', [RWX], [Mode.MULTI_NODE_MULTI_WRITER]],
  ['ROX and RWO (Q-02, B-11)', [ROX, RWO], [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_WRITER]],
  ['ROX and RWOP (Q-03)', [ROX, RWOP], [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_WRITER]],
  ['ROX (Q-04)', [ROX], [Mode.MULTI_NODE_READER_ONLY]],
  ['RWO (Q-05, B-08)', [RWO], [Mode.SINGLE_NODE_WRITER]],
  ['RWOP (Q-06, R-15)', [RWOP], [Mode.SINGLE_NODE_WRITER]],
  ['no mode (Q-07)', [], []],
];
const FINER: Rows = [
  ['RWX (Q-08)', [RWX], [Mode.MULTI_NODE_MULTI_WRITER]],
  ['ROX and RWO (Q-09)', [ROX, RWO], [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_MULTI_WRITER]],
  [
    'ROX and RWOP (Q-10)',
    [ROX, RWOP],
    [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_SINGLE_WRITER],
  ],
  ['ROX (Q-11)', [ROX], [Mode.MULTI_NODE_READER_ONLY]],
  ['RWO (Q-12, B-09)', [RWO], [Mode.SINGLE_NODE_MULTI_WRITER]],
  ['RWOP (Q-13, B-10)', [RWOP], [Mode.SINGLE_NODE_SINGLE_WRITER]],
  ['no mode (Q-14)', [], []],
];

describe('access modes are translated one by one, in their order:', () => {
  for (const [title, from, to] of BASIC) it(title, () => assert.deepEqual(modes(from, false), to));
  it('none, where the claim has no list', () => {
    const { accessModes: _, ...spec } = aClaim().spec;
    const options = { fsType: '', hasMultiWriter: false };
    assert.deepEqual(volumeCapabilities({ ...aClaim(), spec }, aClass(), options), []);
  });
});

describe('access modes are translated for a driver with SINGLE_NODE_MULTI_WRITER:', () => {
  for (const [title, from, to] of FINER) it(title, () => assert.deepEqual(modes(from, true), to));
});

describe('the access type', () => {
  const typeOf = (volumeMode: 'Block' | 'Filesystem') =>
    volumeCapabilities(aClaim({ spec: { volumeMode } }), aClass({ mountOptions: ['ro', 'x=y'] }), {
      fsType: 'xfs',
      hasMultiWriter: false,
    })[0]?.accessType;
  const mount = { fsType: 'xfs', mountFlags: ['ro', 'x=y'] };

  it('is mount, with file system and mount options', () =>
    assert.deepEqual(typeOf('Filesystem'), { case: 'mount', value: mount }));
  it('is block, without mount options, for a block claim', () =>
    assert.deepEqual(typeOf('Block'), { case: 'block', value: {} }));
});
