import {
  bytesOf,
  editCapacity,
  GIB,
  lateClass,
  makeCapacity,
  noteIdentity,
  oneInterval,
  only,
  published,
  removeCapacity,
  room,
  stripCapacity,
} from '../../../../harness/differential/capacity-objects.ts';
import {
  keyOf,
  label,
  makeNode,
  nodes,
  register,
  removeNode,
  zone,
} from '../../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { CLASSES } from '../../../../conformance/objects.ts';
import { all, calls, type Scenario } from '../../../../harness/differential/scenario.ts';
import { status } from '../../../../harness/differential/scripted-driver.ts';

const ONE = nodes({ n1: zone('a') });
const ROOM = room({ a: GIB, b: 2n * GIB });

/** Objects of classes and segments. To be played with a short poll interval. */
export const objects: readonly Scenario[] = [
  shown('shared', 'publishes one object for nodes with equal labels (M-17, N-07, N-09)', {
    prepare: nodes({ n1: zone('a', 'x'), n2: zone('a', 'x'), n3: zone('a', 'y') }),
    ends: published(2, GIB),
  }),
  shown('keys', 'takes each node’s own keys, in any order (N-10, N-12)', {
    prepare: nodes({
      n1: { labels: { zone: 'a', rack: 'x' }, keys: ['zone', 'rack'] },
      n2: { labels: { zone: 'a', rack: 'x' }, keys: ['rack', 'zone'] },
      n3: { labels: { zone: 'a', rack: 'x' }, keys: ['zone'] },
    }),
    ends: published(2, GIB),
  }),
  shown('classes', 'publishes objects for each class (M-17)', {
    prepare: nodes({ n1: zone('a'), n2: zone('b') }),
    ends: async (scene) => {
      await scene.makeClass(`second-${scene.className}`, {
        ...lateClass({ multiplier: '3' })(scene),
      });
      await published(4)(scene);
      await scene.remove(`${CLASSES}/second-${scene.className}`);
      await published(2)(scene);
    },
  }),
  shown('reserved', 'asks with all parameters of the class (R-29)', {
    class: lateClass({ 'csi.storage.k8s.io/fstype': 'xfs', own: 'x' }),
    ends: published(1),
  }),
  shown('maximum', 'publishes the largest volume (M-06)', {
    answer: room({ a: GIB }, { maximumVolumeSize: 1024n ** 2n, minimumVolumeSize: 512n }),
    ends: published(1, GIB),
  }),
  shown('maximum-zero', 'publishes a largest volume of 0', {
    answer: room({ a: GIB }, { maximumVolumeSize: 0n }),
    ends: published(1, GIB),
  }),
  shown('zero', 'publishes a room of 0 (R-30)', {
    answer: room({ a: 0n }),
    ends: published(1, 0n),
  }),
  shown('most', 'publishes the largest number', {
    answer: room({ a: 2n ** 63n - 1n }),
    ends: published(1, 2n ** 63n - 1n),
  }),
  shown('negative', 'publishes no negative room', {
    answer: room({ a: -1n }),
    ends: all(calls('GetCapacity', 1), oneInterval),
  }),
  shown('immediate', 'publishes nothing for a class that does not wait (M-07)', {
    class: (scene) => ({ parameters: { scenario: scene.className } }),
    ends: oneInterval,
  }),
  shown('other-driver', 'publishes nothing for the class of another driver', {
    class: (scene) => ({ ...lateClass()(scene), provisioner: 'another.csi.sutler.dev' }),
    ends: oneInterval,
  }),
  shown('incomplete', 'leaves out nodes without all labels or objects (N-03, N-04, N-05, N-13)', {
    prepare: nodes({
      n1: { labels: { zone: 'a' }, keys: 'no CSINode' },
      n2: { labels: null, keys: ['zone'] },
      n3: { labels: { rack: 'x' }, keys: ['zone', 'rack'] },
      n4: { labels: { zone: 'b' }, keys: null },
    }),
    ends: oneInterval,
  }),
  shown('fails', 'asks again after an error', {
    answer: (call, scene) => {
      if (call.method !== 'GetCapacity') return undefined;
      if (scene.happened.has('failed')) return { availableCapacity: GIB };
      scene.happened.add('failed');
      throw status('Internal', 'no');
    },
    ends: published(1, GIB),
  }),
  shown('polled', 'publishes room, and its changes (M-04, M-24, N-02, R-29)', {
    answer: (call, scene) =>
      call.method === 'GetCapacity'
        ? { availableCapacity: scene.happened.has('more') ? 7n * GIB : GIB }
        : undefined,
    ends: async (scene) => {
      await published(1, GIB)(scene);
      const before = only(scene);
      scene.happened.add('more');
      await published(1, 7n * GIB)(scene);
      noteIdentity(scene, before);
    },
  }),
  ...foreignChanges(),
  ...clusterChanges(),
];

/** Others change the objects. */
function foreignChanges(): readonly Scenario[] {
  return [
    shown('deleted', 'creates a deleted object again (M-20)', {
      ends: changed(
        removeCapacity,
        (scene, before) => scene.capacities().length === 1 && only(scene).metadata.uid !== before,
      ),
    }),
    shown('edited', 'corrects a changed object', {
      ends: changed(
        (scene, found) => editCapacity(scene, found, { capacity: '9Gi' }),
        (scene) => scene.capacities().length === 1 && bytesOf(only(scene)) === GIB,
      ),
    }),
    shown('duplicate', 'deletes a second object (M-21)', {
      ends: changed(
        (scene) => makeCapacity(scene, { zone: 'a' }),
        (scene) => scene.capacities().length === 1,
      ),
    }),
    shown('stripped', 'creates an object again that lost its labels (M-22)', {
      ends: changed(stripCapacity, (scene) => scene.capacities().length === 2),
    }),
    shown('replaced', 'takes over an object of the same name (M-23)', {
      ends: changed(
        async (scene, found) => {
          await removeCapacity(scene, found);
          await makeCapacity(scene, { zone: 'a' }, { capacity: '9Gi' });
        },
        (scene) => scene.capacities().length === 1 && bytesOf(only(scene)) === GIB,
      ),
    }),
    shown('foreign', 'leaves the objects of others alone (M-15, M-16)', {
      prepare: async (scene) => {
        await makeCapacity(scene, { zone: 'a' }, { manager: 'somebody' });
        await makeCapacity(scene, { zone: 'a' }, { manager: null });
        await ONE(scene);
      },
      ends: published(3),
    }),
    shown('obsolete', 'deletes an object without a segment (M-14)', {
      prepare: async (scene) => {
        await ONE(scene);
        await makeCapacity(scene, { zone: 'elsewhere' });
      },
      ends: published(1, GIB),
    }),
  ];
}

/** The cluster changes. */
function clusterChanges(): readonly Scenario[] {
  return [
    shown('class-gone', 'deletes the objects of a deleted class (M-13)', {
      ends: all(
        published(1),
        (scene) => scene.remove(`${CLASSES}/${scene.className}`),
        published(0),
      ),
    }),
    shown('class-again', 'asks with the parameters of a class that was replaced', {
      answer: (call) =>
        call.method === 'GetCapacity'
          ? { availableCapacity: call.capacity.parameters['more'] === 'yes' ? 3n * GIB : GIB }
          : undefined,
      ends: async (scene) => {
        await published(1, GIB)(scene);
        await scene.remove(`${CLASSES}/${scene.className}`);
        await scene.makeClass(scene.className, lateClass({ more: 'yes' })(scene));
        await published(1, 3n * GIB)(scene);
      },
    }),
    shown('node-gone', 'deletes the objects of a segment without nodes (M-27, N-06, N-14, N-15)', {
      prepare: nodes({ n1: zone('a'), n2: zone('b') }),
      ends: all(published(2), (scene) => removeNode(scene, 'n1'), published(1, 2n * GIB)),
    }),
    shown('node-later', 'publishes the segment of a new node (M-25, N-20, N-21)', {
      ends: all(published(1), (scene) => makeNode(scene, 'n2', zone('b')), published(2)),
    }),
    shown('relabelled', 'follows the labels of a node (M-28, N-22)', {
      ends: all(
        published(1, GIB),
        (scene) => label(scene, 'n1', { zone: 'b' }),
        published(1, 2n * GIB),
      ),
    }),
    shown('label-later', 'publishes a segment once the node has all labels (N-18)', {
      prepare: nodes({ n1: { labels: { rack: 'a' }, keys: ['zone', 'rack'] } }),
      ends: all(oneInterval, (scene) => label(scene, 'n1', { zone: 'a' }), published(1, GIB)),
    }),
    shown('driver-later', 'publishes a segment once the driver is registered (N-17, N-19)', {
      prepare: nodes({ n1: { labels: { zone: 'a' }, keys: null } }),
      ends: all(oneInterval, (scene) => register(scene, 'n1', ['zone']), published(1, GIB)),
    }),
    shown('driver-gone', 'deletes the objects of a driver that was removed (N-16)', {
      ends: all(published(1), (scene) => register(scene, 'n1', null), published(0)),
    }),
    shown('other-keys', 'follows the keys of the driver', {
      prepare: nodes({ n1: { labels: { zone: 'a', rack: 'b' }, keys: ['zone'] } }),
      ends: all(
        published(1, GIB),
        (scene) => register(scene, 'n1', ['rack']),
        published(1, 2n * GIB),
        (scene) => {
          scene.notes['keys'] = Object.keys(only(scene).nodeTopology?.matchLabels ?? {}).map(
            (key) => key === keyOf(scene, 'rack'),
          );
          return Promise.resolve();
        },
      ),
    }),
  ];
}

/** Waits for the only object, changes something, and waits until the provisioner has reacted. */
function changed(
  change: (scene: Scene, found: ReturnType<typeof only>) => Promise<void>,
  isDone: (scene: Scene, uid: string) => boolean,
): Scenario['ends'] {
  return async (scene) => {
    await published(1, GIB)(scene);
    const before = only(scene);
    await change(scene, before);
    await scene.stage.observer.next();
    await scene.until('the provisioner has reacted', () => isDone(scene, before.metadata.uid));
    await oneInterval(scene);
    noteIdentity(scene, before);
  };
}

/** A scenario without a claim; its class is deleted in the end. */
export function shown(
  name: string,
  title: string,
  more: Omit<Scenario, 'name' | 'title'>,
): Scenario {
  return {
    name: `cap-${name}`,
    title,
    class: lateClass(),
    claim: null,
    prepare: ONE,
    answer: ROOM,
    afterwards: async (scene) => {
      await scene.remove(`${CLASSES}/${scene.className}`);
      await scene.marker();
    },
    ...more,
  };
}
