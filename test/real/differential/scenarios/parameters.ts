import { refused, scenario, type Scenario } from '../../../harness/differential/scenario.ts';

const P = 'csi.storage.k8s.io/';

/** Class parameters that name no secret. */
export const parameters: readonly Scenario[] = [
  scenario('plain', 'creates a plain volume and deletes it'),
  accepted('par-own', 'passes what is not reserved (A-05)', {
    csiFoo: 'bar',
    bim: 'baz',
    'example.com/key': 'x',
    Key: '',
  }),
  accepted('par-value', 'accepts a reserved key as a value (A-07)', {
    bim: `${P}provisioner-secret-name`,
  }),
  accepted('par-fstype', 'reads fstype and passes it on (B-01)', { fstype: 'ext3' }),
  accepted('par-fstype-case', 'reads FSType in any case and passes it on', { FSType: 'ext3' }),
  accepted('par-fstype-prefixed', 'reads the prefixed fstype and does not pass it on (B-04)', {
    [`${P}fstype`]: 'ext3',
  }),
  accepted('par-fstype-empty', 'treats an empty fstype as none', { fstype: '' }),
  accepted('par-fstype-prefixed-empty', 'treats an empty prefixed fstype as none', {
    [`${P}fstype`]: '',
  }),
  refusal('par-fstype-both', 'refuses both spellings of fstype (B-03)', {
    fstype: 'ext3',
    [`${P}fstype`]: 'ext4',
  }),
  refusal('par-fstype-twice', 'refuses fstype in two cases', { fstype: 'ext3', FSType: 'ext4' }),
  refusal('par-unknown', 'refuses an unknown reserved key (A-10)', { [`${P}nonsense`]: 'x' }),
  accepted('par-case', 'reserves the prefix in lower case only', {
    'CSI.storage.k8s.io/nonsense': 'x',
  }),
  accepted('par-deprecated', 'passes deprecated keys of other purposes on (A-09)', {
    csiControllerPublishSecretName: 'any',
    csiControllerPublishSecretNamespace: 'default',
    csiNodeStageSecretName: 'any',
    csiNodeStageSecretNamespace: 'default',
    csiNodePublishSecretName: 'any',
    csiNodePublishSecretNamespace: 'default',
  }),
  scenario('class-topologies', 'ignores allowedTopologies if the driver has no topology', {
    class: {
      allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['a', 'b'] }] }],
    },
  }),
  scenario('class-expansion', 'copies nothing else of the class', {
    class: { allowVolumeExpansion: true },
  }),
];

function accepted(name: string, title: string, given: Readonly<Record<string, string>>): Scenario {
  return scenario(name, title, { class: { parameters: given } });
}

function refusal(name: string, title: string, given: Readonly<Record<string, string>>): Scenario {
  return { name, title, class: { parameters: given }, ends: refused };
}
