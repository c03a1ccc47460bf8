import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DEFAULT_GATES, parseFeatureGates, retiredGates } from '#src/volumes/flags.ts';

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

  it('are set by name', () => {
    assert.deepEqual(parseFeatureGates(['CrossNamespaceVolumeDataSource=true', 'Topology=false']), {
      ...DEFAULT_GATES,
      CrossNamespaceVolumeDataSource: true,
      Topology: false,
    });
  });

  it('accept true and false in every spelling that Go accepts', () => {
    for (const text of ['1', 't', 'T', 'TRUE', 'true', 'True'])
      assert.deepEqual(parseFeatureGates([`CrossNamespaceVolumeDataSource=${text}`]), {
        ...DEFAULT_GATES,
        CrossNamespaceVolumeDataSource: true,
      });
    for (const text of ['0', 'f', 'F', 'FALSE', 'false', 'False'])
      assert.deepEqual(parseFeatureGates([`Topology=${text}`]), {
        ...DEFAULT_GATES,
        Topology: false,
      });
  });

  it('may have blanks around name and value', () => {
    assert.deepEqual(parseFeatureGates([' Topology = false ']), {
      ...DEFAULT_GATES,
      Topology: false,
    });
  });

  it('that upstream has retired are accepted, and named', () => {
    const items = ['HonorPVReclaimPolicy=true', 'Topology=false'];
    assert.deepEqual(parseFeatureGates(items), { ...DEFAULT_GATES, Topology: false });
    assert.deepEqual(retiredGates(items), ['HonorPVReclaimPolicy']);
    const answer = parseFeatureGates(['HonorPVReclaimPolicy=yes']);
    assert.match(typeof answer === 'string' ? answer : 'accepted', /invalid value/);
  });

  it('have the last of two values', () => {
    assert.deepEqual(parseFeatureGates(['Topology=false', 'Topology=true']), DEFAULT_GATES);
  });

  it('of stage alpha are all set by AllAlpha', () => {
    assert.deepEqual(parseFeatureGates(['AllAlpha=true']), {
      Topology: true,
      CrossNamespaceVolumeDataSource: true,
      VolumeAttributesClass: true,
      ReleaseLeaderElectionOnExit: true,
    });
    assert.deepEqual(parseFeatureGates(['AllAlpha=false']), DEFAULT_GATES);
  });

  it('that are named keep their value, before and after AllAlpha', () => {
    for (const items of [
      ['AllAlpha=true', 'CrossNamespaceVolumeDataSource=false'],
      ['CrossNamespaceVolumeDataSource=false', 'AllAlpha=true'],
    ])
      assert.deepEqual(parseFeatureGates(items), {
        ...DEFAULT_GATES,
        ReleaseLeaderElectionOnExit: true,
      });
  });

  it('accept AllBeta, which sets none', () =>
    assert.deepEqual(parseFeatureGates(['AllBeta=true']), DEFAULT_GATES));

  const unreadable: readonly (readonly [string, string, RegExp])[] = [
    [
      'without a value',
      'Topology',
      /^missing value in "Topology"; write Topology=true or Topology=false$/,
    ],
    [
      'with a value that is no boolean',
      'Topology=yes',
      /^invalid value in "Topology=yes"; write Topology=true or Topology=false$/,
    ],
    ['with two values', 'Topology=true=false', /^invalid value in "Topology=true=false"/],
    [
      'that do not exist',
      'HonorPVReclaimPolicies=true',
      /^unrecognized feature gate: HonorPVReclaimPolicies; there are Topology, /,
    ],
    ['without a name', '=true', /^unrecognized feature gate: ;/],
    [
      'with the name of an inherited property',
      'toString=true',
      /^unrecognized feature gate: toString;/,
    ],
  ];
  for (const [what, item, message] of unreadable) {
    it(`${what} are refused, and the text names the fix`, () => {
      const answer = parseFeatureGates(['Topology=true', item]);
      assert.ok(typeof answer === 'string');
      assert.match(answer, message);
    });
  }
});
