import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { Closers } from '#src/runtime/closers.ts';
import { Connection } from '../conformance/connection.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { runSutler } from '../harness/run-sutler.ts';

const PLURALS: Readonly<Record<string, string>> = {
  Service: 'api/v1/NS/services',
  NetworkPolicy: 'apis/networking.k8s.io/v1/NS/networkpolicies',
  Role: 'apis/rbac.authorization.k8s.io/v1/NS/roles',
  RoleBinding: 'apis/rbac.authorization.k8s.io/v1/NS/rolebindings',
};

const open = realControlPlane(process.env, { binder: false });

describe('sutler migrate, from a workload in the cluster', () => {
  const closers = new Closers();
  let plane: RealControlPlane;
  let api: Connection;
  let namespace: string;
  let out: string;
  before(async () => {
    plane = await open();
    closers.add('cluster', () => plane.close());
    api = new Connection(plane);
    closers.add('connection', () => api.close());
    namespace = await api.namespace();
    const folder = await mkdtemp(join(tmpdir(), 'sutler-migrate-'));
    closers.add('folder', () => rm(folder, { recursive: true }));
    out = join(folder, 'out');
    await api.create(`/apis/apps/v1/namespaces/${namespace}/deployments`, {
      metadata: { name: 'shop-controller' },
      spec: {
        selector: { matchLabels: { app: 'shop' } },
        template: {
          metadata: { labels: { app: 'shop' } },
          spec: {
            containers: [
              { name: 'shop-driver', image: 'example.com/shop:v1' },
              {
                name: 'csi-provisioner',
                image: 'example.com/csi-provisioner:v6.3.0',
                args: ['--csi-address=/plugin/csi.sock', '--leader-election'],
                volumeMounts: [{ name: 'sockets', mountPath: '/plugin' }],
              },
            ],
            volumes: [{ name: 'sockets', emptyDir: {} }],
          },
        },
      },
    });
    const flags = ['-n', namespace, '--driver-name=shop.example', `--out=${out}`];
    const kubeconfig = `--kubeconfig=${plane.kubeconfig}`;
    const ended = await runSutler(
      ['migrate', 'deployment/shop-controller', kubeconfig, ...flags],
      {},
    );
    assert.equal(ended.code, 0, ended.err);
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const read = (path: string) =>
    parseAllDocuments(readFileSync(join(out, path), 'utf8')).map(
      (each) => each.toJS() as { kind: string; metadata: { name: string } },
    );
  /** As kubectl apply --server-side --dry-run=server does. */
  const dryRun = async (path: string, object: unknown): Promise<void> => {
    const query = { dryRun: 'All', fieldManager: 'test', force: true };
    const contentType = 'application/apply-patch+yaml';
    const body = JSON.stringify(object);
    const { status, text } = await api.call('PATCH', path, { query, body, contentType });
    assert.ok(status === 200 || status === 201, text);
  };

  it('writes a workload that the API server accepts, and the old one for the way back', async () => {
    const path = `/apis/apps/v1/namespaces/${namespace}/deployments/shop-controller`;
    for (const file of ['workload.yaml', 'back/workload.yaml']) await dryRun(path, read(file)[0]);
  });

  it('writes objects beside it that the API server accepts', async () => {
    for (const object of read('beside/objects.yaml')) {
      const plural = PLURALS[object.kind]?.replace('NS', `namespaces/${namespace}`);
      await dryRun(`/${plural}/${object.metadata.name}`, object);
    }
  });

  it('changes nothing itself', async () => {
    const services = await api.read(`/api/v1/namespaces/${namespace}/services`);
    assert.deepEqual((services as { items: unknown[] }).items, []);
  });
});
