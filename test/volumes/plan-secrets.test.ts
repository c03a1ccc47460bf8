import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CsiSource } from '#src/kube/objects.ts';
import { aClaim, aClass } from './builders.ts';
import { planCreation, planRefusal, completePv } from './plans.ts';

const N = 'csi.storage.k8s.io/';
const pair = (purpose: string, name: string, namespace: string) => ({
  [`${N}${purpose}secret-name`]: name,
  [`${N}${purpose}secret-namespace`]: namespace,
});
const refsOf = (csi: CsiSource | undefined) => [
  csi?.controllerPublishSecretRef,
  csi?.nodeStageSecretRef,
  csi?.nodePublishSecretRef,
  csi?.controllerExpandSecretRef,
  csi?.nodeExpandSecretRef,
];
const annotationsOf = (name: string, namespace: string, modify: string) => ({
  'pv.kubernetes.io/provisioned-by': 'test-driver',
  'volume.kubernetes.io/provisioner-deletion-secret-name': name,
  'volume.kubernetes.io/provisioner-deletion-secret-namespace': namespace,
  'volume.kubernetes.io/controller-modify-secret-name': modify,
  'volume.kubernetes.io/controller-modify-secret-namespace': namespace,
});

describe('the secrets of a class', () => {
  it('are referred to by operation, for deletion and modification in annotations (B-12)', async () => {
    const parameters = {
      ...pair('provisioner-', 'provisionersecret', 'default'),
      ...pair('controller-publish-', 'ctrlpublishsecret', 'default'),
      ...pair('node-stage-', 'nodestagesecret', 'default'),
      ...pair('node-publish-', 'nodepublishsecret', 'default'),
      ...pair('controller-expand-', 'controllerexpandsecret', 'default'),
      ...pair('node-expand-', 'nodeexpandsecret', 'default'),
      ...pair('controller-modify-', 'ctrlmodifysecret', 'default'),
    };
    const { metadata, spec } = await completePv({ cls: aClass({ parameters }) });
    assert.deepEqual(
      refsOf(spec.csi),
      [
        'ctrlpublishsecret',
        'nodestagesecret',
        'nodepublishsecret',
        'controllerexpandsecret',
        'nodeexpandsecret',
      ].map((name) => ({
        name,
        namespace: 'default',
      })),
    );
    assert.deepEqual(
      metadata.annotations,
      annotationsOf('provisionersecret', 'default', 'ctrlmodifysecret'),
    );
  });

  it('are the default secret for all operations without their own (B-13)', async () => {
    const given = { cls: aClass({ parameters: pair('', 'default-secret', 'default-ns') }) };
    const { metadata, spec } = await completePv(given);
    const ref = { name: 'default-secret', namespace: 'default-ns' };
    assert.deepEqual(refsOf(spec.csi), [ref, ref, ref, ref, ref]);
    assert.deepEqual(
      metadata.annotations,
      annotationsOf('default-secret', 'default-ns', 'default-secret'),
    );
    assert.deepEqual((await planCreation(given)).plan.secret, ref);
  });

  it('may be named after the claim (B-14)', async () => {
    const cls = aClass({ parameters: pair('', '${pvc.name}', 'default-ns') });
    const { metadata, spec } = await completePv({
      cls,
      claim: aClaim({ metadata: { name: 'my-pvc' } }),
    });
    const ref = { name: 'my-pvc', namespace: 'default-ns' };
    assert.deepEqual(refsOf(spec.csi), [ref, ref, ref, ref, ref]);
    assert.deepEqual(metadata.annotations, annotationsOf('my-pvc', 'default-ns', 'my-pvc'));
  });

  it('may be named after the volume’s CSI name', async () => {
    const cls = aClass({ parameters: pair('provisioner-', '${pv.name}', 'ns') });
    assert.deepEqual((await planCreation({ cls })).plan.secret, {
      name: 'test-testi',
      namespace: 'ns',
    });
  });

  it('are refused if only one half of the reference is given (B-17)', async () => {
    const cls = aClass({ parameters: { [`${N}provisioner-secret-name`]: '' } });
    const reason =
      'either name and namespace for Provisioner secrets specified, Both must be specified';
    assert.deepEqual(await planRefusal({ cls }), {
      kind: 'refuse',
      message: `failed to get name and namespace template from params: ${reason}`,
      waitsFor: [],
    });
  });

  it('are refused for one half even next to a default secret (B-21)', async () => {
    const parameters = {
      ...pair('', "static-${pvc.annotations['akey']}", 'default-ns'),
      csiProvisionerSecretName: '',
    };
    assert.match(
      (await planRefusal({ cls: aClass({ parameters }) })).message,
      /Both must be specified$/,
    );
  });

  it('are optional: without them the PV has neither references nor modify annotations', async () => {
    const { metadata, spec } = await completePv();
    assert.deepEqual(Object.keys(spec.csi ?? {}).toSorted(), [
      'driver',
      'fsType',
      'volumeAttributes',
      'volumeHandle',
    ]);
    assert.equal(
      metadata.annotations?.['volume.kubernetes.io/controller-modify-secret-name'],
      undefined,
    );
  });
});
