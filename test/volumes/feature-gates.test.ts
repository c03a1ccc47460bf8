import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DEFAULT_GATES, parseFeatureGates, retiredGates } from '#src/volumes/flags.ts';

const CROSS = { CrossNamespaceVolumeDataSource: true };
const RELEASE = { ReleaseLeaderElectionOnExit: true };
const NO_TOPOLOGY = { Topology: false };

describe('feature gates', () => {
  it('have upstream’s defaults', () => {
    assert.deepEqual(parseFeatureGates([]), DEFAULT_GATES);
    assert.deepEqual(DEFAULT_GATES, {
      Topology: true,
      CrossNamespaceVolumeDataSource: false,
      VolumeAttributesClass: true,
      ReleaseLeaderElectionOnExit: false,
    });
  });

  const accepted: readonly (readonly [string, readonly string[], Partial<typeof DEFAULT_GATES>])[] =
    [
      [
        'are set by name',
        ['CrossNamespaceVolumeDataSource=true', 'Topology=false'],
        { ...CROSS, ...NO_TOPOLOGY },
      ],
      ['accept every spelling of Go', ['CrossNamespaceVolumeDataSource=T'], CROSS],
      ['may have blanks around name and value', [' Topology = false '], NO_TOPOLOGY],
      ['have the last of two values', ['Topology=false', 'Topology=true'], {}],
      ['of stage alpha are all set by AllAlpha', ['AllAlpha=true'], { ...CROSS, ...RELEASE }],
      ['are as by default with AllAlpha=false', ['AllAlpha=false'], {}],
      [
        'that are named keep their value before AllAlpha',
        ['CrossNamespaceVolumeDataSource=false', 'AllAlpha=true'],
        RELEASE,
      ],
      ['accept AllBeta, which sets none', ['AllBeta=true'], {}],
      [
        'that upstream has retired are accepted',
        ['HonorPVReclaimPolicy=true', 'Topology=false'],
        NO_TOPOLOGY,
      ],
    ];
  for (const [title, items, change] of accepted)
    it(title, () => assert.deepEqual(parseFeatureGates(items), { ...DEFAULT_GATES, ...change }));

  it('that upstream has retired are named', () =>
    assert.deepEqual(retiredGates(['HonorPVReclaimPolicy=true', 'Topology=false']), [
      'HonorPVReclaimPolicy',
    ]));

  const unknown = (name: string) =>
    `unrecognized feature gate: ${name}; there are Topology, CrossNamespaceVolumeDataSource, ` +
    'VolumeAttributesClass, ReleaseLeaderElectionOnExit, AllAlpha and AllBeta';
  const fix = 'write Topology=true or Topology=false';
  const unreadable: Readonly<Record<string, readonly [item: string, message: string]>> = {
    'without a value': ['Topology', `missing value in "Topology"; ${fix}`],
    'with a value that is no boolean': ['Topology=yes', `invalid value in "Topology=yes"; ${fix}`],
    'that do not exist': ['HonorPVReclaimPolicies=true', unknown('HonorPVReclaimPolicies')],
    'with the name of an inherited property': ['toString=true', unknown('toString')],
  };
  for (const [what, [item, message]] of Object.entries(unreadable))
    it(`${what} are refused, and the text names the fix`, () =>
      assert.equal(parseFeatureGates(['Topology=true', item]), message));
});
