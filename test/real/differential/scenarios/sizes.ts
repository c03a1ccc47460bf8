import {
  all,
  bound,
  calls,
  refused,
  type Scenario,
} from '../../../harness/differential/scenario.ts';
import {
  status,
  volumeFor,
  type CallAnswer,
} from '../../../harness/differential/scripted-driver.ts';

const ASKED = [
  '1',
  '1500m',
  '1Gi',
  '1000000000',
  '1023',
  '1000',
  '0.5Gi',
  '1.5G',
  '1e3',
  '5632Mi',
  '123456789',
  '3Ti',
  '100Ki',
  '9E',
];

/** Sizes asked for and given, and what else a driver may say of a volume (spec 02 §7.10, §8.3, §9).
 */
export const sizes: readonly Scenario[] = [
  ...ASKED.map((storage): Scenario => ({
    name: `size-${storage.toLowerCase().replace('.', '-')}`,
    title: `asks for ${storage} and writes what it gets (A-12, R-18)`,
    claim: { spec: { resources: { requests: { storage } } } },
    ends: bound,
  })),
  {
    name: 'size-limit',
    title: 'passes no limit',
    claim: { spec: { resources: { requests: { storage: '1Gi' }, limits: { storage: '2Gi' } } } },
    ends: bound,
  },
  given('given-zero', 'takes capacity 0 for what was asked (B-26)', { capacityBytes: 0n }),
  given('given-larger', 'writes the larger size it got', { capacityBytes: 2n * 1024n ** 3n }),
  given('given-larger-odd', 'writes a larger size that is no multiple', {
    capacityBytes: 1024n ** 3n + 1n,
  }),
  given('given-thousands', 'writes a larger size that ends in zeros', {
    capacityBytes: 2_000_000_000n,
  }),
  given('given-no-context', 'does without a volume context', { volumeContext: {} }),
  given('given-identity', 'lets the driver overwrite the identity', {
    volumeContext: { 'storage.kubernetes.io/csiProvisionerIdentity': 'the driver', other: 'x' },
  }),
  given('given-topology', 'ignores a topology where the driver has none (E-03)', {
    accessibleTopology: [{ segments: { zone: 'a' } }],
  }),
  given('given-source', 'ignores a content source that was not asked for', {
    contentSource: { type: { case: 'snapshot', value: { snapshotId: 'unasked' } } },
  }),
  {
    name: 'given-smaller',
    title: 'has a smaller volume deleted, and says so (B-22, B-46)',
    answer: always({ capacityBytes: 1024n }),
    ends: all(refused, calls('DeleteVolume', 1)),
  },
  {
    name: 'given-smaller-once',
    title: 'takes the volume when a later one is large enough',
    answer: (call) =>
      call.method === 'CreateVolume' && call.count === 1
        ? volumeFor(call.create, { capacityBytes: 1024n })
        : undefined,
    ends: all(refused, bound),
  },
  {
    name: 'given-smaller-secret',
    title: 'has a smaller volume deleted with the secret of its creation',
    prepare: (scene) => scene.makeSecret('creds', { user: 'anna' }),
    class: ({ namespace }) => ({
      parameters: {
        'csi.storage.k8s.io/provisioner-secret-name': 'creds',
        'csi.storage.k8s.io/provisioner-secret-namespace': namespace,
      },
    }),
    answer: always({ capacityBytes: 1024n }),
    ends: all(refused, calls('DeleteVolume', 1)),
  },
  {
    name: 'given-smaller-stuck',
    title: 'says that a smaller volume is orphaned where it can not be deleted (R-11)',
    answer: (call) => {
      if (call.method === 'DeleteVolume') throw status('Internal', 'can not delete');
      return volumeFor(call.create, { capacityBytes: 1024n });
    },
    ends: all(refused, calls('DeleteVolume', 1)),
  },
  {
    name: 'given-no-id',
    title: 'never takes an empty volume id for a volume',
    answer: always({ volumeId: '' }),
    ends: calls('CreateVolume', 1),
  },
];

function always(changes: Parameters<typeof volumeFor>[1]): CallAnswer {
  return (call) => (call.method === 'CreateVolume' ? volumeFor(call.create, changes) : undefined);
}

function given(name: string, title: string, changes: Parameters<typeof volumeFor>[1]): Scenario {
  return { name, title, answer: always(changes), ends: bound };
}
