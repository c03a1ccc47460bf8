import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { silentLog } from '#src/runtime/log.ts';
import { type SandboxApi, startSandboxApi } from '../../../sandbox/api/server.ts';
import { type Binder, startBinder } from '../../../sandbox/binder/binder.ts';
import { findKubectls, runKubectl } from '../../harness/sandbox-kubectl.ts';

const MANIFEST = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: x.dev
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 5Gi}
  storageClassName: fast
  csi: {driver: x.dev, volumeHandle: h}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {a: Yg==}
`;

const kubectls = await findKubectls(process.env);

describe('kubectl', { skip: kubectls.length === 0 && 'no kubectl on PATH' }, () => {
  for (const path of kubectls) {
    describe(path, () => {
      let dir: string;
      let api: SandboxApi;
      let binder: Binder;
      before(async () => {
        dir = await mkdtemp(join(tmpdir(), 'sutler-kubectl-'));
        api = await startSandboxApi({ log: silentLog });
        binder = startBinder({ operations: api.operations, log: silentLog });
        await writeFile(join(dir, 'config'), api.kubeconfig(), { mode: 0o600 });
      });
      after(async () => {
        await binder.close();
        await api.close();
        await rm(dir, { recursive: true, force: true });
      });

      const kubectl = (args: readonly string[], input = '') =>
        runKubectl({ path, kubeconfig: join(dir, 'config'), cacheDir: dir }, args, input);
      const ok = async (args: readonly string[], input = ''): Promise<string> => {
        const { code, stdout, stderr } = await kubectl(args, input);
        assert.equal(code, 0, `kubectl ${args.join(' ')}: ${stderr}`);
        return stdout;
      };

      it('applies manifests without extra flags, and again without a change', async () => {
        assert.match(
          await ok(['apply', '-f', '-'], MANIFEST),
          /persistentvolumeclaim\/data created/,
        );
        assert.equal((await ok(['apply', '-f', '-'], MANIFEST)).match(/unchanged/g)?.length, 4);
      });

      it('shows claims, volumes and classes as a table', async () => {
        await binder.idle();
        assert.match(
          await ok(['get', 'pvc']),
          /^NAME +STATUS +VOLUME +CAPACITY +ACCESS MODES +STORAGECLASS.*AGE\s+data +Bound +pv +5Gi +RWO +fast/,
        );
        assert.match(
          await ok(['get', 'pv', '-o', 'wide']),
          /pv +5Gi +RWO +Retain +Bound +default\/data +fast.*Filesystem/,
        );
        assert.match(await ok(['get', 'sc']), /fast +x\.dev +Delete +Immediate +false/);
        assert.match(
          await ok(['get', 'ns,secrets,leases,nodes', '-A']),
          /namespace\/default +Active/,
        );
      });

      it('describes claims with their events, and volumes', async () => {
        await ok(
          ['apply', '-f', '-'],
          MANIFEST.split('---')[1]?.replace('name: data', 'name: waits').replace('1Gi', '99Gi'),
        );
        await binder.idle();
        assert.match(
          await ok(['describe', 'pvc', 'waits']),
          /ExternalProvisioning .*persistentvolume-controller/,
        );
        assert.match(await ok(['describe', 'pv', 'pv']), /VolumeHandle: +h/);
        assert.match(
          await ok(['get', 'events']),
          /Normal +ExternalProvisioning +persistentvolumeclaim\/waits/,
        );
      });

      it('creates what it writes as protobuf, and deletes a namespace with its contents', async () => {
        await ok(['create', 'namespace', 'n']);
        await ok(['create', 'secret', 'generic', 'g', '--from-literal=a=b', '-n', 'n']);
        await ok(['create', 'configmap', 'm', '--from-literal=a=b', '-n', 'n']);
        await ok(['create', 'serviceaccount', 's', '-n', 'n']);
        const args = ['get', 'secret', 'g', '-n', 'n', '-o', 'jsonpath={.data.a}'];
        assert.equal(await ok(args), 'Yg==');
        await ok(['delete', 'namespace', 'n']);
        assert.equal((await kubectl(args)).code, 1);
      });

      it('deletes an object and waits until it is gone', async () => {
        await ok(['delete', 'pvc', '--all', '--wait', '--timeout=10s']);
        await ok(['delete', '-f', '-', '--ignore-not-found', '--timeout=10s'], MANIFEST);
        assert.equal((await ok(['get', 'pvc,pv,sc', '-o', 'name'])).trim(), '');
      });
    });
  }
});
