import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VolumeCapability_AccessMode_Mode as Mode } from '#src/csi/generated/csi_pb.ts';
import { volumeCapabilities } from '#src/volumes/plan.ts';
import { aClaim, aClass } from './builders.ts';
import { claimFor, hasMessage } from './plans.ts';

const RWO = 'ReadWriteOnce';
const ROX = 'ReadOnlyMany';
const RWX = 'ReadWriteMany';
const RWOP = 'ReadWriteOncePod';

const modes = (accessModes: readonly string[], hasMultiWriter: boolean) =>
  volumeCapabilities(claimFor(...accessModes), aClass(), { fsType: 'ext4', hasMultiWriter }).map(
    ({ accessMode }) => accessMode?.mode,
  );

/* Upstream's library maps a whole list of modes and refuses some lists. Its provisioner passes one
 * mode at a time, so that these refusals never occur; sutler does as the provisioner does. */
const BASIC: readonly (readonly [string, readonly string[], readonly Mode[]])[] = [
  ['RWX to MULTI_NODE_MULTI_WRITER (Q-01)', [RWX], [Mode.MULTI_NODE_MULTI_WRITER]],
  [
    'ROX and RWO to one mode each, in their order (Q-02)',
    [ROX, RWO],
    [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_WRITER],
  ],
  [
    'ROX and RWOP to one mode each, in their order (Q-03)',
    [ROX, RWOP],
    [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_WRITER],
  ],
  ['ROX to MULTI_NODE_READER_ONLY (Q-04)', [ROX], [Mode.MULTI_NODE_READER_ONLY]],
  ['RWO to SINGLE_NODE_WRITER (Q-05)', [RWO], [Mode.SINGLE_NODE_WRITER]],
  ['RWOP to SINGLE_NODE_WRITER (Q-06, R-15)', [RWOP], [Mode.SINGLE_NODE_WRITER]],
  ['no mode to no capability (Q-07)', [], []],
];
const FINER: typeof BASIC = [
  ['RWX to MULTI_NODE_MULTI_WRITER (Q-08)', [RWX], [Mode.MULTI_NODE_MULTI_WRITER]],
  [
    'ROX and RWO to one mode each, in their order (Q-09)',
    [ROX, RWO],
    [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_MULTI_WRITER],
  ],
  [
    'ROX and RWOP to one mode each, in their order (Q-10)',
    [ROX, RWOP],
    [Mode.MULTI_NODE_READER_ONLY, Mode.SINGLE_NODE_SINGLE_WRITER],
  ],
  ['ROX to MULTI_NODE_READER_ONLY (Q-11)', [ROX], [Mode.MULTI_NODE_READER_ONLY]],
  ['RWO to SINGLE_NODE_MULTI_WRITER (Q-12)', [RWO], [Mode.SINGLE_NODE_MULTI_WRITER]],
  ['RWOP to SINGLE_NODE_SINGLE_WRITER (Q-13)', [RWOP], [Mode.SINGLE_NODE_SINGLE_WRITER]],
  ['no mode to no capability (Q-14)', [], []],
];

describe('access modes', () => {
  describe('are translated:', () => {
    for (const [title, from, to] of BASIC)
      it(title, () => assert.deepEqual(modes(from, false), to));
  });

  describe('are translated for a driver with SINGLE_NODE_MULTI_WRITER:', () => {
    for (const [title, from, to] of FINER) it(title, () => assert.deepEqual(modes(from, true), to));
  });

  it('without a CSI equivalent are refused', () => {
    for (const hasMultiWriter of [false, true])
      assert.throws(
        () => modes([RWO, 'Other'], hasMultiWriter),
        hasMessage('unsupported AccessMode combination: [Other]'),
      );
  });

  it('may be missing', () => {
    const { accessModes: _, ...spec } = aClaim().spec;
    assert.deepEqual(
      volumeCapabilities({ ...aClaim(), spec }, aClass(), { fsType: '', hasMultiWriter: false }),
      [],
    );
  });
});

describe('the access type', () => {
  const typeOf = (volumeMode: 'Block' | 'Filesystem' | undefined, mountOptions?: string[]) =>
    volumeCapabilities(
      aClaim({ spec: volumeMode === undefined ? {} : { volumeMode } }),
      aClass(mountOptions === undefined ? {} : { mountOptions }),
      { fsType: 'xfs', hasMultiWriter: false },
    )[0]?.accessType;

  it('is mount, with file system and mount options', () => {
    assert.deepEqual(typeOf(undefined, ['ro', 'x=y']), {
      case: 'mount',
      value: { fsType: 'xfs', mountFlags: ['ro', 'x=y'] },
    });
    assert.deepEqual(typeOf('Filesystem'), {
      case: 'mount',
      value: { fsType: 'xfs', mountFlags: [] },
    });
  });

  it('is block, without mount options, for a block claim', () => {
    assert.deepEqual(typeOf('Block', ['ro']), { case: 'block', value: {} });
  });
});
