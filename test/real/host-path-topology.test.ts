import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Closers } from '#src/runtime/closers.ts';
import {
  at,
  Connection,
  type Fields,
  listAt,
  type Reply,
  textAt,
  unique,
} from '../conformance/connection.ts';
import { CLASSES, VOLUMES, claim, paths, storageClass } from '../conformance/objects.ts';
import { startSutler } from '../harness/differential/provisioners.ts';
import { type HostPathDriver, NODE_KEY, startHostPathDriver } from '../harness/host-path-driver.ts';
import { makeNode } from '../harness/real-nodes.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
const program = process.env['CSI_HOSTPATH'];

if (program === undefined || program === '') {
  process.stdout.write(
    'sutler with csi-driver-host-path, topology and capacity: not tested; ' +
      'set CSI_HOSTPATH to the path of hostpathplugin\n',
  );
} else {
  const open = realControlPlane(process.env, { binder: true });
  describe('sutler with csi-driver-host-path, topology and capacity', () => {
    const closers = new Closers();
    const node = unique('node');
    let api: Connection;
    let driver: HostPathDriver;
    let hasScheduler: boolean;
    let namespace: string;
    let capacities: string;
    let fast: string;
    let slow: string;
    before(async () => {
      try {
        const plane = await open();
        closers.add('cluster', () => plane.close());
        ({ hasScheduler } = plane);
        api = new Connection(plane);
        closers.add('connection', () => api.close());
        const folder = await mkdtemp(join(tmpdir(), 'sutler-host-path-'));
        closers.add('folder', () => rm(folder, { recursive: true, force: true }));
        driver = await startHostPathDriver({
          program,
          folder,
          name: `${unique('hostpath')}.csi.k8s.io`,
          node,
          capacity: { fast: '3Gi', slow: '10Gi' },
        });
        closers.add('driver', () => driver.stop());
        namespace = await api.namespace();
        capacities = `/apis/storage.k8s.io/v1/namespaces/${namespace}/csistoragecapacities`;
        await makeNode(api, { name: node, driver: driver.name, labels: { [NODE_KEY]: node } });
        await makeNode(api, { name: unique('node'), driver: undefined, labels: {} });
        await api.create('/apis/storage.k8s.io/v1/csidrivers', {
          apiVersion: 'storage.k8s.io/v1',
          kind: 'CSIDriver',
          metadata: { name: driver.name },
          spec: { storageCapacity: true, attachRequired: false },
        });
        const sutler = await startSutler({
          kubeconfig: plane.kubeconfig,
          socket: driver.socket,
          folder,
          namespace,
          env: { NAMESPACE: namespace },
          flags: [
            '--retry-interval-start=200ms',
            '--enable-capacity',
            '--capacity-ownerref-level=-1',
            '--kube-api-capacity-qps=50',
          ],
        });
        closers.add('sutler', () => sutler.stop());
        [fast, slow] = [await makeClass('fast'), await makeClass('slow')];
      } catch (error) {
        await closers.close();
        throw error;
      }
    });
    after(async () => {
      assert.deepEqual(await closers.close(), []);
    });

    it('publishes the driver’s room of each class on its node', async () => {
      const { body } = await api.until(capacities, (reply) => items(reply).length === 2);
      const shown = listAt(body, 'items').map((item) => [
        at(item, 'storageClassName') === fast ? 'fast' : 'slow',
        at(item, 'capacity'),
        at(item, 'nodeTopology', 'matchLabels'),
      ]);
      assert.deepEqual(shown.toSorted(), [
        ['fast', '3Gi', { [NODE_KEY]: node }],
        ['slow', '10Gi', { [NODE_KEY]: node }],
      ]);
    });

    it('creates the volume of a chosen node there, with a node affinity', async () => {
      const bound = await bind('chosen', slow, { annotations: { [SELECTED_NODE]: node } });
      const volume = await api.read(`${VOLUMES}/${textAt(bound, 'spec', 'volumeName')}`);
      assert.deepEqual(at(volume, 'spec', 'nodeAffinity', 'required', 'nodeSelectorTerms'), [
        { matchExpressions: [{ key: NODE_KEY, operator: 'In', values: [node] }] },
      ]);
    });

    it('publishes the room that is left after the volume', async () => {
      await api.until(capacities, (reply) => roomOf(reply, slow) === '9Gi');
    });

    it('gives up a node without room, and says why', async () => {
      const chosen = { annotations: { [SELECTED_NODE]: node } };
      await make('huge', fast, { metadata: chosen, storage: '5Gi' });
      const { events, claims } = paths(namespace);
      const about = { fieldSelector: 'involvedObject.name=huge,reason=ProvisioningFailed' };
      const { body } = await api.until(events, (reply) => items(reply).length > 0, about);
      assert.match(textAt(body, 'items', 0, 'message'), /code = ResourceExhausted/);
      await api.until(
        `${claims}/huge`,
        ({ body }) => at(body, 'metadata', 'annotations', SELECTED_NODE) === undefined,
      );
      assert.equal((await api.call('DELETE', `${claims}/huge`)).status, 200);
    });

    it('creates volumes for pods that kube-scheduler places', async (t) => {
      if (skipsWithoutScheduler(t)) return;
      await make('for-pod', fast, { storage: '1Gi' });
      await makePod('pod', 'for-pod');
      const pod = await api.until(
        `/api/v1/namespaces/${namespace}/pods/pod`,
        ({ body }) => at(body, 'spec', 'nodeName') !== undefined,
      );
      assert.equal(at(pod.body, 'spec', 'nodeName'), node);
      await api.until(capacities, (reply) => roomOf(reply, fast) === '2Gi');
    });

    it('lets kube-scheduler leave a pod that needs more room than there is', async (t) => {
      if (skipsWithoutScheduler(t)) return;
      await make('too-much', fast, { storage: '3Gi' });
      await makePod('waiting', 'too-much');
      const { body } = await api.until(`/api/v1/namespaces/${namespace}/pods/waiting`, (reply) =>
        listAt(reply.body, 'status', 'conditions').some(
          (condition) => at(condition, 'reason') === 'Unschedulable',
        ),
      );
      assert.match(JSON.stringify(at(body, 'status')), /did not have enough free storage/);
      const waiting = await api.read(`${paths(namespace).claims}/too-much`);
      assert.equal(at(waiting, 'metadata', 'annotations', SELECTED_NODE), undefined);
    });

    it('lets that pod start once another volume is deleted', async (t) => {
      if (skipsWithoutScheduler(t)) return;
      const pods = `/api/v1/namespaces/${namespace}/pods`;
      await api.call('DELETE', `${pods}/pod`, { query: { gracePeriodSeconds: 0 } });
      await api.call('DELETE', `${paths(namespace).claims}/for-pod`);
      const { body } = await api.until(
        `${pods}/waiting`,
        (reply) => at(reply.body, 'spec', 'nodeName') !== undefined,
      );
      assert.equal(at(body, 'spec', 'nodeName'), node);
    });

    function skipsWithoutScheduler(t: { skip(why: string): void }): boolean {
      if (!hasScheduler) t.skip('there is no kube-scheduler among the assets');
      return !hasScheduler;
    }

    async function makeClass(kind: string): Promise<string> {
      const name = unique(kind);
      const fields = {
        provisioner: driver.name,
        volumeBindingMode: 'WaitForFirstConsumer',
        parameters: { kind },
      };
      await api.create(CLASSES, storageClass(name, { fields }));
      return name;
    }

    async function make(
      name: string,
      storageClassName: string,
      more: { readonly metadata?: Fields; readonly storage?: string },
    ): Promise<void> {
      const { metadata = {}, storage = '1Gi' } = more;
      const spec = { storageClassName, resources: { requests: { storage } } };
      await api.create(paths(namespace).claims, claim(name, { metadata, spec }));
    }

    async function bind(name: string, className: string, metadata: Fields): Promise<unknown> {
      await make(name, className, { metadata });
      const path = `${paths(namespace).claims}/${name}`;
      const isBound = ({ body }: Reply): boolean => at(body, 'status', 'phase') === 'Bound';
      return (await api.until(path, isBound)).body;
    }

    async function makePod(name: string, claimName: string): Promise<void> {
      await api.create(`/api/v1/namespaces/${namespace}/pods`, {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name },
        spec: {
          containers: [{ name: 'main', image: 'none' }],
          volumes: [{ name: 'data', persistentVolumeClaim: { claimName } }],
        },
      });
    }
  });
}

function items(reply: Reply): readonly unknown[] {
  return listAt(reply.body, 'items');
}

/** The published room of a class. */
function roomOf(reply: Reply, className: string): unknown {
  const found = items(reply).filter((item) => at(item, 'storageClassName') === className);
  return found.length === 1 ? at(found[0], 'capacity') : undefined;
}
