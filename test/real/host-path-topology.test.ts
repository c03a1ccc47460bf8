import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { at, type Fields, listAt, type Reply, unique } from '../conformance/connection.ts';
import { CLASSES, paths, storageClass } from '../conformance/objects.ts';
import {
  HOST_PATH_PROGRAM,
  type HostPathBed,
  NODE_KEY,
  openHostPathBed,
} from '../harness/host-path-bed.ts';
import { makeNode } from '../harness/real-nodes.ts';

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';

if (HOST_PATH_PROGRAM !== undefined) {
  const program = HOST_PATH_PROGRAM;
  describe('sutler with csi-driver-host-path, topology and capacity', () => {
    const node = unique('node');
    let bed: HostPathBed;
    let capacities: string;
    let fast: string;
    let slow: string;
    before(async () => {
      const options = { node, capacity: { fast: '3Gi', slow: '10Gi' } };
      bed = await openHostPathBed(program, options);
      const { api, driver, namespace } = bed;
      await makeNode(api, { name: node, driver: driver.name, labels: { [NODE_KEY]: node } });
      await makeNode(api, { name: unique('node'), driver: undefined, labels: {} });
      await api.create('/apis/storage.k8s.io/v1/csidrivers', {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'CSIDriver',
        metadata: { name: driver.name },
        spec: { storageCapacity: true, attachRequired: false },
      });
      const capacity = ['--enable-capacity', '--capacity-ownerref-level=-1'];
      await bed.startSutler([...capacity, '--kube-api-capacity-qps=50'], {
        NAMESPACE: namespace,
      });
      capacities = `/apis/storage.k8s.io/v1/namespaces/${bed.namespace}/csistoragecapacities`;
      [fast, slow] = [await makeClass('fast'), await makeClass('slow')];
    });
    after(() => bed.close());

    it('publishes the driver’s room of each class on its node', async () => {
      const { body } = await bed.api.until(capacities, (reply) => items(reply).length === 2);
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
      const chosen = { annotations: { [SELECTED_NODE]: node } };
      const volume = await bed.bind('chosen', specOf(slow), chosen);
      assert.deepEqual(at(volume, 'spec', 'nodeAffinity', 'required', 'nodeSelectorTerms'), [
        { matchExpressions: [{ key: NODE_KEY, operator: 'In', values: [node] }] },
      ]);
    });

    it('publishes the room that is left after the volume', async () => {
      await bed.api.until(capacities, (reply) => roomOf(reply, slow) === '9Gi');
    });

    it('gives up a node without room, and says why', async () => {
      const chosen = { annotations: { [SELECTED_NODE]: node } };
      await bed.createClaim('huge', specOf(fast, '5Gi'), chosen);
      assert.match(await bed.failureOf('huge'), /code = ResourceExhausted/);
      const { claims } = paths(bed.namespace);
      await bed.api.until(
        `${claims}/huge`,
        ({ body }) => at(body, 'metadata', 'annotations', SELECTED_NODE) === undefined,
      );
      assert.equal((await bed.api.call('DELETE', `${claims}/huge`)).status, 200);
    });

    it('creates volumes for pods that kube-scheduler places', async (t) => {
      if (skipsWithoutScheduler(t)) return;
      await bed.createClaim('for-pod', specOf(fast));
      await makePod('pod', 'for-pod');
      const pod = await bed.api.until(
        `/api/v1/namespaces/${bed.namespace}/pods/pod`,
        ({ body }) => at(body, 'spec', 'nodeName') !== undefined,
      );
      assert.equal(at(pod.body, 'spec', 'nodeName'), node);
      await bed.api.until(capacities, (reply) => roomOf(reply, fast) === '2Gi');
    });

    it('lets kube-scheduler leave a pod that needs more room than there is', async (t) => {
      if (skipsWithoutScheduler(t)) return;
      await bed.createClaim('too-much', specOf(fast, '3Gi'));
      await makePod('waiting', 'too-much');
      const { body } = await bed.api.until(
        `/api/v1/namespaces/${bed.namespace}/pods/waiting`,
        (reply) =>
          listAt(reply.body, 'status', 'conditions').some(
            (condition) => at(condition, 'reason') === 'Unschedulable',
          ),
      );
      assert.match(JSON.stringify(at(body, 'status')), /did not have enough free storage/);
      const waiting = await bed.api.read(`${paths(bed.namespace).claims}/too-much`);
      assert.equal(at(waiting, 'metadata', 'annotations', SELECTED_NODE), undefined);
    });

    it('lets that pod start once another volume is deleted', async (t) => {
      if (skipsWithoutScheduler(t)) return;
      const pods = `/api/v1/namespaces/${bed.namespace}/pods`;
      await bed.api.call('DELETE', `${pods}/pod`, { query: { gracePeriodSeconds: 0 } });
      await bed.api.call('DELETE', `${paths(bed.namespace).claims}/for-pod`);
      const { body } = await bed.api.until(
        `${pods}/waiting`,
        (reply) => at(reply.body, 'spec', 'nodeName') !== undefined,
      );
      assert.equal(at(body, 'spec', 'nodeName'), node);
    });

    function skipsWithoutScheduler(t: { skip(why: string): void }): boolean {
      if (!bed.plane.hasScheduler) t.skip('there is no kube-scheduler among the assets');
      return !bed.plane.hasScheduler;
    }

    async function makeClass(kind: string): Promise<string> {
      const name = unique(kind);
      const fields = {
        provisioner: bed.driver.name,
        volumeBindingMode: 'WaitForFirstConsumer',
        parameters: { kind },
      };
      await bed.api.create(CLASSES, storageClass(name, { fields }));
      return name;
    }

    function specOf(storageClassName: string, storage = '1Gi'): Fields {
      return { storageClassName, resources: { requests: { storage } } };
    }

    async function makePod(name: string, claimName: string): Promise<void> {
      await bed.api.create(`/api/v1/namespaces/${bed.namespace}/pods`, {
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
