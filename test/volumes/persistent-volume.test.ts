import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { planVolume } from '#src/volumes/plan.ts';
import { completeVolume, readAnswer } from '#src/volumes/persistent-volume.ts';
import type { VolumeSkeleton } from '#src/volumes/persistent-volume.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { aClaim, aClass, driver, options } from './builders.ts';

function skeletonOf(given: { claim?: Claim; cls?: Class; readonlyFlag?: boolean } = {}): VolumeSkeleton {
  const plan = planVolume({
    claim: given.claim ?? aClaim(),
    cls: given.cls ?? aClass(),
    className: 'class',
    driver,
    options: { ...options, controllerPublishReadonly: given.readonlyFlag ?? false },
  });
  assert.ok(plan.kind === 'create', JSON.stringify(plan));
  // As the record has it: through JSON and back.
  return JSON.parse(JSON.stringify(plan.skeleton)) as VolumeSkeleton;
}

const response = (volume: { volumeId?: string; capacityBytes?: bigint; volumeContext?: Record<string, string> } | undefined) =>
  create(CreateVolumeResponseSchema, volume === undefined ? {} : { volume: { volumeId: 'test-volume-id', ...volume } });

function volumeOf(skeleton: VolumeSkeleton, volume: Parameters<typeof response>[0] = { capacityBytes: 100n }) {
  const answer = readAnswer(response(volume), skeleton);
  assert.ok(typeof answer !== 'string', JSON.stringify(answer));
  return completeVolume(skeleton, answer);
}

describe('the new PV', () => {
  it('has every field that upstream writes for a plain claim', () => {
    assert.deepEqual(volumeOf(skeletonOf()), {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: {
        name: 'test-testi',
        annotations: {
          'pv.kubernetes.io/provisioned-by': 'test-driver',
          'volume.kubernetes.io/provisioner-deletion-secret-name': '',
          'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
        },
        finalizers: ['external-provisioner.volume.kubernetes.io/finalizer'],
      },
      spec: {
        accessModes: ['ReadWriteOnce'],
        capacity: { storage: '100' },
        claimRef: {
          kind: 'PersistentVolumeClaim',
          apiVersion: 'v1',
          namespace: 'space',
          name: 'claim',
          uid: 'testid',
          resourceVersion: '7',
        },
        csi: {
          driver: 'test-driver',
          volumeHandle: 'test-volume-id',
          fsType: 'ext4',
          volumeAttributes: { 'storage.kubernetes.io/csiProvisionerIdentity': 'test-provisioner' },
        },
        persistentVolumeReclaimPolicy: 'Delete',
        storageClassName: 'class',
      },
    });
  });

  it('takes the requested size where the driver answers 0', () => {
    assert.equal(volumeOf(skeletonOf(), { capacityBytes: 0n }).spec.capacity?.storage, '100');
  });

  it('takes the driver’s larger size, as Kubernetes prints it', () => {
    assert.equal(volumeOf(skeletonOf(), { capacityBytes: 1_610_612_736n }).spec.capacity?.storage, '1536Mi');
  });

  it('lets the driver’s context overwrite the identity', () => {
    const key = 'storage.kubernetes.io/csiProvisionerIdentity';
    assert.deepEqual(volumeOf(skeletonOf(), { volumeContext: { [key]: 'own', a: 'b' } }).spec.csi?.volumeAttributes, {
      [key]: 'own',
      a: 'b',
    });
  });

  it('has no fsType for a block claim', () => {
    const volume = volumeOf(skeletonOf({ claim: aClaim({ spec: { volumeMode: 'Block' } }) }));
    assert.equal(volume.spec.csi?.fsType, undefined);
    assert.equal(volume.spec.volumeMode, 'Block');
  });

  it('is read-only for a single ReadOnlyMany only with --controller-publish-readonly', () => {
    const claim = aClaim({ spec: { accessModes: ['ReadOnlyMany'] } });
    assert.equal(volumeOf(skeletonOf({ claim })).spec.csi?.readOnly, undefined);
    assert.equal(volumeOf(skeletonOf({ claim, readonlyFlag: true })).spec.csi?.readOnly, true);
  });

  it('refers to secrets per operation and keeps the deletion secret as annotations', () => {
    const parameters = {
      'csi.storage.k8s.io/secret-name': 's',
      'csi.storage.k8s.io/secret-namespace': 'n',
      'csi.storage.k8s.io/provisioner-secret-name': 'p',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'n',
    };
    const { metadata, spec } = volumeOf(skeletonOf({ cls: aClass({ parameters }) }));
    assert.deepEqual(spec.csi?.nodeStageSecretRef, { name: 's', namespace: 'n' });
    assert.deepEqual(spec.csi?.controllerExpandSecretRef, { name: 's', namespace: 'n' });
    assert.equal(metadata.annotations?.['volume.kubernetes.io/provisioner-deletion-secret-name'], 'p');
    assert.equal(metadata.annotations?.['volume.kubernetes.io/controller-modify-secret-name'], 's');
  });
});

describe('readAnswer', () => {
  it('does not take an answer without a volume', () => {
    assert.match(JSON.stringify(readAnswer(response(undefined), skeletonOf())), /without a volume/);
  });

  it('does not take an empty handle', () => {
    assert.match(JSON.stringify(readAnswer(response({ volumeId: '' }), skeletonOf())), /empty volume_id/);
  });

  it('does not take a volume that is too small', () => {
    assert.equal(readAnswer(response({ capacityBytes: 99n }), skeletonOf()), 'created volume capacity 99 less than requested capacity 100');
  });
});
