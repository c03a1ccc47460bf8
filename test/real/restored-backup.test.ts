import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { type Reflector, startReflector } from '#src/kube/reflector.ts';
import { claims } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';

const open = realControlPlane(process.env, { binder: false });

describe('kube-apiserver whose data is restored from a backup', () => {
  let plane: RealControlPlane;
  let client: KubeClient;
  let reflector: Reflector<Claim>;

  before(async () => {
    plane = await open();
    const access = await loadClusterAccess({ kubeconfig: plane.kubeconfig, env: {} });
    client = createKubeClient({ access, userAgent: 'test', log: silentLog });
    const transform = (raw: unknown) => raw as Claim;
    reflector = startReflector({ client, resource: claims, transform, log: silentLog });
  });
  after(async () => {
    await reflector.stop();
    await client.close();
    await plane.close();
  });

  const create = async (name: string): Promise<string> => {
    const { metadata } = await client.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Mi' } } },
    });
    return metadata.resourceVersion;
  };

  it('a watch shows what is made afterwards, with a version that it had passed', async (t) => {
    if (plane.backUp === undefined) return t.skip('the cluster of KUBECONFIG is not restored');
    await reflector.waitForSync();
    const restore = await plane.backUp();
    let passed = '';
    for (let n = 0; n < 300; n += 1) passed = await create(`lost-${n}`);
    await until(() => reflector.get('default/lost-299') !== undefined, 'the watch shows the last');
    await restore();
    const startedMs = Date.now();
    assert.ok(Number(await create('after')) < Number(passed), 'the server went back');
    await until(() => reflector.get('default/after') !== undefined, 'it is shown', 60_000);
    t.diagnostic(`shown after ${Date.now() - startedMs} ms`);
    assert.equal(reflector.get('default/lost-299'), undefined);
  });
});
