import {
  all,
  bound,
  calls,
  refused,
  scenario,
  type Scenario,
} from '../../../harness/differential/scenario.ts';
import {
  type CallAnswer,
  status,
  volumeFor,
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

/** Requested and created sizes, and the other fields of a driver's answer. */
export const sizes: readonly Scenario[] = [
  ...ASKED.map((storage): Scenario =>
    scenario(
      `size-${storage.toLowerCase().replace('.', '-')}`,
      `requests ${storage} and writes the driver’s size (A-12, R-18)`,
      { claim: { spec: { resources: { requests: { storage } } } } },
    ),
  ),
  scenario('size-limit', 'passes no limit', {
    claim: { spec: { resources: { requests: { storage: '1Gi' }, limits: { storage: '2Gi' } } } },
  }),
  given('given-zero', 'treats capacity 0 as the requested size (B-26)', { capacityBytes: 0n }),
  given('given-larger-odd', 'writes a larger size that is no multiple', {
    capacityBytes: 1024n ** 3n + 1n,
  }),
  given('given-no-context', 'accepts an answer without a volume context', { volumeContext: {} }),
  given('given-identity', 'lets the driver overwrite the identity', {
    volumeContext: { 'storage.kubernetes.io/csiProvisionerIdentity': 'the driver', other: 'x' },
  }),
  given('given-topology', 'ignores a topology if the driver does not report topology (E-03)', {
    accessibleTopology: [{ segments: { zone: 'a' } }],
  }),
  given('given-source', 'ignores a content source that was not asked for', {
    contentSource: { type: { case: 'snapshot', value: { snapshotId: 'unasked' } } },
  }),
  scenario('given-smaller-once', 'accepts a later volume that is large enough', {
    answer: (call) =>
      call.method === 'CreateVolume' && call.count === 1
        ? volumeFor(call.create, { capacityBytes: 1024n })
        : undefined,
    ends: all(refused, bound),
  }),
  scenario('given-smaller-secret', 'deletes a smaller volume, with its secret (B-22, B-46)', {
    prepare: (scene) => scene.makeSecret('creds', { user: 'anna' }),
    class: ({ namespace }) => ({
      parameters: {
        'csi.storage.k8s.io/provisioner-secret-name': 'creds',
        'csi.storage.k8s.io/provisioner-secret-namespace': namespace,
      },
    }),
    answer: always({ capacityBytes: 1024n }),
    ends: all(refused, calls('DeleteVolume', 1)),
  }),
  scenario('given-smaller-stuck', 'reports a smaller volume that can’t be deleted (R-11)', {
    answer: (call) => {
      if (call.method === 'DeleteVolume') throw status('Internal', 'can not delete');
      return volumeFor(call.create, { capacityBytes: 1024n });
    },
    ends: all(refused, calls('DeleteVolume', 1)),
  }),
  scenario('given-no-id', 'never accepts an empty volume id', {
    answer: always({ volumeId: '' }),
    ends: calls('CreateVolume', 1),
  }),
];

function always(changes: Parameters<typeof volumeFor>[1]): CallAnswer {
  return (call) => (call.method === 'CreateVolume' ? volumeFor(call.create, changes) : undefined);
}

function given(name: string, title: string, changes: Parameters<typeof volumeFor>[1]): Scenario {
  return scenario(name, title, { answer: always(changes) });
}
