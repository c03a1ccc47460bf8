import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { StorageCapacity } from '#src/kube/objects.ts';
import { claims, storageCapacities } from '#src/kube/resources.ts';
import { managedBy } from '#src/capacity/objects.ts';
import { labelsOf } from '#src/capacity/objects.ts';
import { NODE_KEY, NodeBed } from '../../harness/node-bed.ts';
import { DRIVER } from '../../harness/process-bed.ts';
import type { Running } from '../../harness/run-main.ts';
import { until } from '../../harness/until.ts';

const MIB = 1024n ** 2n;
const NAMESPACE = 'default';
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };

describe('storage capacity of a driver that runs on each node', () => {
  let bed: NodeBed;
  let jobs: Running;

  before(async () => {
    bed = await NodeBed.open(
      [
        { name: 'foo', capacityBytes: 10n * MIB },
        { name: 'bar', capacityBytes: 100n * MIB },
      ],
      { NAMESPACE },
    );
    await bed.createNode('bare');
    await bed.createClass('late', LATE);
    await createObject({ driver: DRIVER, managedBy: managedBy('foo') });
    await bed.startIngest('--enable-capacity', '--capacity-poll-interval=1h');
    jobs = await bed.startJobs(
      '--enable-capacity',
      '--capacity-ownerref-level=-1',
      '--kube-api-capacity-qps=0',
    );
  });
  after(() => bed.close());

  /** An object of another provisioner, for node foo. */
  async function createObject(manager: Parameters<typeof labelsOf>[0]): Promise<void> {
    await bed.kube.create(storageCapacities, NAMESPACE, {
      apiVersion: 'storage.k8s.io/v1',
      kind: storageCapacities.kind,
      metadata: { name: 'upstream', labels: labelsOf(manager) },
      storageClassName: 'late',
      nodeTopology: { matchLabels: { [NODE_KEY]: 'foo' } },
      capacity: '1Ti',
    });
  }
  /** `class node capacity` of each object that sutler has written, in order. */
  const published = async (): Promise<string> => {
    const options = { namespace: NAMESPACE };
    const { items } = await bed.kube.list<StorageCapacity>(storageCapacities, options);
    return items
      .filter(({ metadata: { name } }) => name !== 'upstream')
      .map(
        ({ storageClassName, nodeTopology, capacity }) =>
          `${storageClassName} ${nodeTopology?.matchLabels?.[NODE_KEY]} ${capacity}`,
      )
      .sort()
      .join(', ');
  };
  const publishes = (text: string, timeoutMs?: number): Promise<void> =>
    until(async () => (await published()) === text, `the objects are ${text}`, timeoutMs);
  /** Runs of the capacity queue that ended so. */
  const runs = async (outcome: string): Promise<number> => {
    const page = await (await fetch(new URL('/metrics', jobs.url))).text();
    const line = page
      .split('\n')
      .find(
        (text) =>
          text.startsWith('sutler_queue_runs_total{') &&
          text.includes('kind="capacity"') &&
          text.includes(`outcome="${outcome}"`),
      );
    return Number(line?.split(' ').at(-1) ?? 0);
  };

  it('is what the driver of each node says; a node without gateway has no value', async () => {
    await publishes('late bar 100Mi, late foo 10Mi');
    await until(async () => (await runs('later')) > 0, 'the node without gateway was looked at');
    assert.equal(await published(), 'late bar 100Mi, late foo 10Mi');
  });

  it('is asked of the touched node alone, and written within a second of a creation', async () => {
    const before = bed.calls('bar', 'GetCapacity');
    await bed.createClaim('small', { storage: '4Mi', className: 'late', node: 'foo' });
    await until(async () => bed.drivers.get('foo')?.volumes().length === 1, 'a volume exists');
    await publishes('late bar 100Mi, late foo 6Mi', 1_000);
    assert.equal(bed.calls('bar', 'GetCapacity'), before);
  });

  it('is written within a second of a deletion', async () => {
    await until(() => bed.isBound('small'), 'the claim is bound');
    await bed.kube.delete(claims, { namespace: 'default', name: 'small' });
    await until(async () => bed.drivers.get('foo')?.volumes().length === 0, 'the volume is gone');
    await publishes('late bar 100Mi, late foo 10Mi', 1_000);
  });

  it('is kept while the gateway of a node is gone, and asked for when it is back', async () => {
    await bed.setGateway('foo', false);
    await bed.createClass('second', LATE);
    await publishes('late bar 100Mi, late foo 10Mi, second bar 100Mi');
    await bed.setGateway('foo', true);
    await publishes('late bar 100Mi, late foo 10Mi, second bar 100Mi, second foo 10Mi', 10_000);
  });

  it('comes with a node and its gateway, and goes with the Node', async () => {
    await bed.addNode({ name: 'new', capacityBytes: 7n * MIB });
    const others = 'late bar 100Mi, late foo 10Mi';
    const seconds = 'second bar 100Mi, second foo 10Mi';
    await publishes(`${others}, late new 7Mi, ${seconds}, second new 7Mi`, 10_000);
    await bed.deleteNode('new');
    await publishes(`${others}, ${seconds}`);
  });

  it('is looked for rarely while a node has no gateway', async () => {
    // Two values of one node, and two more for a moment: 0.5 s at first, then twice as long each.
    const count = await runs('later');
    assert.ok(count < 60, `${count} runs`);
  });

  it('leaves an object alone that belongs to upstream’s provisioner on a node', async () => {
    const ref = { namespace: NAMESPACE, name: 'upstream' };
    const object = await bed.kube.get<StorageCapacity>(storageCapacities, ref);
    assert.equal(object?.capacity, '1Ti');
    assert.equal(
      object.metadata.labels?.['csi.storage.k8s.io/managed-by'],
      'external-provisioner-foo',
    );
  });
});
