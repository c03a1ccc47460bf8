import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { aClaim, aClass } from './builders.ts';
import { completePv, type Given, planCreation, planRefusal } from './plans.ts';

const N = 'csi.storage.k8s.io/';
const pair = (purpose: string, name: string, namespace: string) => ({
  [`${N}${purpose}secret-name`]: name,
  [`${N}${purpose}secret-namespace`]: namespace,
});
const classOf = (parameters: Record<string, string>): Given => ({ cls: aClass({ parameters }) });
/** The references of a PV, and the secrets that its annotations name: for deletion and for
 * modification. */
const secretsOf = async (given: Given) => {
  const { metadata, spec } = await completePv(given);
  const { annotations = {} } = metadata;
  const annotated = (purpose: string) => ({
    name: annotations[`volume.kubernetes.io/${purpose}-secret-name`],
    namespace: annotations[`volume.kubernetes.io/${purpose}-secret-namespace`],
  });
  return [
    spec.csi?.controllerPublishSecretRef,
    spec.csi?.nodeStageSecretRef,
    spec.csi?.nodePublishSecretRef,
    spec.csi?.controllerExpandSecretRef,
    spec.csi?.nodeExpandSecretRef,
    annotated('provisioner-deletion'),
    annotated('controller-modify'),
  ];
};

describe('the secrets of a class', () => {
  const forAll = (name: string) => Array.from({ length: 7 }, () => ({ name, namespace: 'ns' }));

  it('are referred to by operation, for deletion and modification in annotations (B-12)', async () => {
    const purposes = ['controller-publish-', 'node-stage-', 'node-publish-', 'controller-expand-'];
    purposes.push('node-expand-', 'provisioner-', 'controller-modify-');
    const parameters = Object.assign({}, ...purposes.map((name) => pair(name, `${name}s`, 'ns')));
    assert.deepEqual(
      await secretsOf(classOf(parameters as Record<string, string>)),
      purposes.map((name) => ({ name: `${name}s`, namespace: 'ns' })),
    );
  });

  it('are the default secret for all operations without their own (B-13)', async () => {
    const given = classOf(pair('', 'default-secret', 'ns'));
    assert.deepEqual(await secretsOf(given), forAll('default-secret'));
    const { secret } = (await planCreation(given)).plan;
    assert.deepEqual(secret, { name: 'default-secret', namespace: 'ns' });
  });

  it('may be named after the claim (B-14)', async () => {
    const claim = aClaim({ metadata: { name: 'my-pvc' } });
    const given = { ...classOf(pair('', '${pvc.name}', 'ns')), claim };
    assert.deepEqual(await secretsOf(given), forAll('my-pvc'));
  });

  it('are refused for one half even next to a default secret (B-21)', async () => {
    const parameters = { ...pair('', 'static', 'ns'), csiProvisionerSecretName: '' };
    assert.match((await planRefusal(classOf(parameters))).message, /Both must be specified$/);
  });

  it('are not in the request, and the plan has the reference', async () => {
    const { plan, request } = await planCreation(classOf(pair('provisioner-', '${pv.name}', 'ns')));
    assert.deepEqual(request.secrets, {});
    assert.deepEqual(plan.secret, { name: 'test-testi', namespace: 'ns' });
  });
});
