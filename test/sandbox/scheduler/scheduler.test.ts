import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type JsonObject, memberAt, textAt } from '../../../sandbox/api/json-value.ts';
import { claims } from '../../../sandbox/api/kinds/claims.ts';
import { nodes, pods } from '../../../sandbox/api/kinds/core.ts';
import { events } from '../../../sandbox/api/kinds/events.ts';
import { classes, csiDrivers, storageCapacities } from '../../../sandbox/api/kinds/storage.ts';
import { volumes } from '../../../sandbox/api/kinds/volumes.ts';
import type { KubeObject } from '../../../sandbox/api/kube-object.ts';
import type { Operations } from '../../../sandbox/api/operations.ts';
import { SELECTED_NODE } from '../../../sandbox/binder/annotations.ts';
import { type Binder, startBinder } from '../../../sandbox/binder/binder.ts';
import { type Scheduler, startScheduler } from '../../../sandbox/scheduler/scheduler.ts';
import { emptyOperations } from '../empty-operations.ts';

const ACCESS = { accessModes: ['ReadWriteOnce'] };
const ZONE = 'topology.kubernetes.io/zone';

/** A clock whose sleeps end when the test says so. */
class HeldClock implements Clock {
  readonly delaysMs: number[] = [];
  readonly #waiting: (() => void)[] = [];
  nowMs = systemClock.nowMs;
  sleep(ms: number): Promise<void> {
    this.delaysMs.push(ms);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
  async wake(): Promise<void> {
    for (const resolve of this.#waiting.splice(0)) resolve();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe('the scheduler', () => {
  let operations: Operations;
  let binder: Binder;
  let scheduler: Scheduler;
  let clock: HeldClock;

  beforeEach(() => {
    operations = emptyOperations();
    for (const [name, zone] of [
      ['a1', 'a'],
      ['a2', 'a'],
      ['b1', 'b'],
    ] as const)
      operations.create(nodes, undefined, { metadata: { name, labels: { [ZONE]: zone, name } } });
    newClass('late');
    binder = startBinder({ operations, log: silentLog });
    clock = new HeldClock();
    scheduler = startScheduler({ operations, log: silentLog, clock });
  });
  afterEach(async () => {
    await scheduler.close();
    await binder.close();
  });

  const newClass = (name: string, fields: JsonObject = {}) =>
    operations.create(classes, undefined, {
      metadata: { name },
      provisioner: 'x.dev',
      volumeBindingMode: 'WaitForFirstConsumer',
      ...fields,
    });
  const newClaim = (name: string, spec: JsonObject = {}) =>
    operations.create(claims, 'default', {
      metadata: { name },
      spec: {
        ...ACCESS,
        storageClassName: 'late',
        resources: { requests: { storage: '1Gi' } },
        ...spec,
      },
    }).object;
  const newPod = (name: string, claimNames: readonly string[], spec: JsonObject = {}) =>
    operations.create(pods, 'default', {
      metadata: { name },
      spec: {
        containers: [{ name: 'main' }],
        volumes: claimNames.map((claimName) => ({
          name: claimName,
          persistentVolumeClaim: { claimName },
        })),
        ...spec,
      },
    }).object;
  const claimNow = (name: string) =>
    operations.get({ resource: claims, namespace: 'default', name }).object;
  const podNow = (name: string) =>
    operations.get({ resource: pods, namespace: 'default', name }).object;
  const selected = (name: string) => claimNow(name).metadata.annotations?.[SELECTED_NODE];
  const place = (name: string) =>
    `${textAt(podNow(name), 'status', 'phase')} ${textAt(podNow(name), 'spec', 'nodeName')}`.trim();
  const settle = async () => {
    for (let round = 0; round < 4; round += 1) {
      await scheduler.idle();
      await binder.idle();
    }
  };
  /** What a provisioner creates. */
  const provision = (claim: KubeObject, ...labels: readonly (readonly [string, string])[]) =>
    operations.create(volumes, undefined, {
      metadata: { name: `pv-${claim.metadata.name}` },
      spec: {
        ...ACCESS,
        storageClassName: 'late',
        capacity: { storage: '1Gi' },
        csi: { driver: 'x.dev', volumeHandle: claim.metadata.name },
        claimRef: {
          namespace: 'default',
          name: claim.metadata.name,
          uid: claim.metadata.uid,
        },
        ...affinity(...labels),
      },
    });
  const affinity = (...labels: readonly (readonly [string, string])[]) => ({
    nodeAffinity: {
      required: {
        nodeSelectorTerms: [
          {
            matchExpressions: labels.map(([key, value]) => ({
              key,
              operator: 'In',
              values: [value],
            })),
          },
        ],
      },
    },
  });
  /** What a provisioner does where the driver has no room. */
  const reschedule = (name: string) =>
    operations.patch({ resource: claims, namespace: 'default', name }, 'merge', {
      metadata: { annotations: { [SELECTED_NODE]: null } },
    });
  const failures = (pod: string) =>
    operations.store
      .collection(events)
      .sorted.map(({ object }) => object)
      .filter(
        (event) =>
          textAt(event, 'reason') === 'FailedScheduling' &&
          textAt(event, 'involvedObject', 'name') === pod,
      )
      .map((event) => textAt(event, 'message'));

  it('runs a pod without claims at once, and says so', async () => {
    newPod('p', []);
    await settle();
    assert.equal(place('p'), 'Running a1');
    const conditions = memberAt(podNow('p'), 'status', 'conditions');
    assert.ok(Array.isArray(conditions));
    assert.ok(conditions.some((each) => textAt(each, 'type') === 'Ready'));
  });

  it('selects a node for a claim, and runs the pod there when the claim is Bound', async () => {
    const claim = newClaim('c');
    newPod('p', ['c']);
    await settle();
    assert.deepEqual([selected('c'), place('p')], ['a1', 'Pending']);
    provision(claim, ['name', 'a1']);
    await settle();
    assert.equal(place('p'), 'Running a1');
  });

  it('handles pods that existed before it started', async () => {
    await scheduler.close();
    newClaim('c');
    newPod('p', ['c']);
    scheduler = startScheduler({ operations, log: silentLog, clock });
    await settle();
    assert.equal(selected('c'), 'a1');
  });

  it('waits for a claim that does not exist, is not bound yet, or is being deleted', async () => {
    newPod('missing', ['none']);
    newClass('soon', { volumeBindingMode: 'Immediate' });
    newClaim('unbound', { storageClassName: 'soon' });
    newPod('immediate', ['unbound']);
    await settle();
    assert.deepEqual(failures('missing'), [
      '0/3 nodes are available: persistentvolumeclaim "none" not found.',
    ]);
    assert.deepEqual(failures('immediate'), [
      '0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.',
    ]);
    newClaim('none');
    await settle();
    assert.equal(selected('none'), 'a1');
  });

  it('selects another node when the selected one is removed from the claim', async () => {
    const claim = newClaim('c');
    newPod('p', ['c']);
    await settle();
    reschedule('c');
    await settle();
    assert.equal(selected('c'), 'a2');
    assert.deepEqual(failures('p'), [
      'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"',
    ]);
    provision(claim, ['name', 'a2']);
    await settle();
    assert.equal(place('p'), 'Running a2');
  });

  it('leaves a pod Pending while all nodes are full, and tries them again later', async () => {
    newClaim('c');
    newPod('p', ['c']);
    await settle();
    for (const _node of ['a1', 'b1', 'a2']) {
      reschedule('c');
      await settle();
    }
    assert.deepEqual([selected('c'), place('p')], [undefined, 'Pending']);
    assert.equal(
      failures('p').at(-1),
      '0/3 nodes are available: 3 node(s) did not have enough free storage.',
    );
    assert.deepEqual(clock.delaysMs, [1_000]);
    await clock.wake();
    await settle();
    assert.equal(selected('c'), 'a1');
  });

  it('waits longer each time that all nodes are full, ten seconds at most', async () => {
    operations.delete({ resource: nodes, name: 'a2' });
    operations.delete({ resource: nodes, name: 'b1' });
    newClaim('c');
    newPod('p', ['c']);
    for (let round = 0; round < 6; round += 1) {
      await settle();
      reschedule('c');
      await settle();
      await clock.wake();
    }
    assert.deepEqual(clock.delaysMs, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
  });

  it('tries full nodes at once when a volume was deleted', async () => {
    const other = provision(newClaim('other'), ['name', 'a1']).object;
    newClaim('c');
    newPod('p', ['c']);
    await settle();
    for (const _node of ['a1', 'b1', 'a2']) {
      reschedule('c');
      await settle();
    }
    assert.equal(selected('c'), undefined);
    operations.patch({ resource: volumes, name: other.metadata.name }, 'merge', {
      metadata: { finalizers: null },
    });
    operations.delete({ resource: volumes, name: other.metadata.name });
    await settle();
    assert.equal(selected('c'), 'a1');
  });

  it('follows a volume that was created on another node', async () => {
    const claim = newClaim('c');
    newPod('p', ['c']);
    await settle();
    provision(claim, ['name', 'b1']);
    await settle();
    assert.equal(place('p'), 'Running b1');
  });

  it('runs a pod only where all its volumes can be used', async () => {
    provision(newClaim('one'), [ZONE, 'b']);
    newClaim('two');
    newPod('p', ['one', 'two']);
    await settle();
    assert.equal(selected('two'), 'b1');
    provision(newClaim('three'), [ZONE, 'a']);
    newPod('torn', ['one', 'three']);
    await settle();
    assert.deepEqual(failures('torn'), [
      "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.",
    ]);
  });

  it('heeds nodeSelector, unschedulable nodes and the allowedTopologies of a class', async () => {
    newClass('in-a', {
      allowedTopologies: [{ matchLabelExpressions: [{ key: ZONE, values: ['a'] }] }],
    });
    operations.patch({ resource: nodes, name: 'a1' }, 'merge', { spec: { unschedulable: true } });
    newClaim('c', { storageClassName: 'in-a' });
    newPod('p', ['c']);
    newClaim('d', { storageClassName: 'in-a' });
    newPod('q', ['d'], { nodeSelector: { [ZONE]: 'b' } });
    await settle();
    assert.equal(selected('c'), 'a2');
    assert.deepEqual(failures('q'), [
      "0/3 nodes are available: 1 node(s) didn't find available persistent volumes to bind, " +
        "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable.",
    ]);
  });

  it('leaves a pod alone that has another scheduler', async () => {
    newPod('p', [], { schedulerName: 'other' });
    await settle();
    assert.equal(place('p'), 'Pending');
  });

  it('takes a free volume that the node can use before one is created', async () => {
    operations.create(volumes, undefined, {
      metadata: { name: 'free' },
      spec: {
        ...ACCESS,
        storageClassName: 'late',
        capacity: { storage: '5Gi' },
        csi: { driver: 'x.dev', volumeHandle: 'free' },
        ...affinity([ZONE, 'b']),
      },
    });
    newClaim('c');
    newPod('p', ['c'], { nodeSelector: { [ZONE]: 'b' } });
    await settle();
    assert.equal(textAt(claimNow('c'), 'spec', 'volumeName'), 'free');
    assert.deepEqual([selected('c'), place('p')], [undefined, 'Running b1']);
  });

  describe('with a driver that reports its capacity', () => {
    beforeEach(() => {
      operations.create(csiDrivers, undefined, {
        metadata: { name: 'x.dev' },
        spec: { storageCapacity: true },
      });
    });
    const capacityOf = (name: string, fields: JsonObject, className = 'late') =>
      operations.create(storageCapacities, 'default', {
        metadata: { generateName: 'csisc-' },
        storageClassName: className,
        nodeTopology: { matchLabels: { name } },
        ...fields,
      });

    it('selects no node before the capacity of one is known', async () => {
      newClaim('c');
      newPod('p', ['c']);
      await settle();
      assert.deepEqual(failures('p'), [
        '0/3 nodes are available: 3 node(s) did not have enough free storage.',
      ]);
      capacityOf('a2', { capacity: '1Gi' });
      await settle();
      assert.equal(selected('c'), 'a2');
    });

    it('selects a node with enough capacity, or maximum volume size where it is known', async () => {
      capacityOf('a1', { capacity: '1023Mi' });
      capacityOf('a2', { capacity: '10Gi', maximumVolumeSize: '1023Mi' });
      capacityOf('b1', { capacity: '10Gi' }, 'another');
      newClaim('c');
      newPod('p', ['c']);
      await settle();
      assert.equal(selected('c'), undefined);
      capacityOf('b1', { capacity: '1Mi', maximumVolumeSize: '1Gi' });
      await settle();
      assert.equal(selected('c'), 'b1');
    });
  });

  it('waits for a node where there is none', async () => {
    for (const name of ['a1', 'a2', 'b1']) operations.delete({ resource: nodes, name });
    newPod('p', []);
    await settle();
    assert.deepEqual(failures('p'), ['no nodes available to schedule pods']);
    operations.create(nodes, undefined, { metadata: { name: 'new' } });
    await settle();
    assert.equal(place('p'), 'Running new');
  });
});
