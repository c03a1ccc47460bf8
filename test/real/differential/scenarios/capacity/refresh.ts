import {
  GIB,
  makeCapacity,
  oneInterval,
  published,
} from '../../../../harness/differential/capacity-objects.ts';
import {
  choose,
  chosen,
  keyOf,
  nodes,
  on,
  removeNodes,
  zone,
} from '../../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { shown } from './objects.ts';
import {
  all,
  bound,
  calls,
  event,
  type Scenario,
} from '../../../../harness/differential/scenario.ts';
import {
  type CallAnswer,
  status,
  volumeFor,
} from '../../../../harness/differential/scripted-driver.ts';

const TWO = nodes({ n1: zone('a'), n2: zone('b') });

/** What makes the provisioner ask again. To be played with a long poll interval. */
export const refresh: readonly Scenario[] = [
  {
    ...shown('after-create', 'asks again for the segment of a new volume (M-36)', { ends: bound }),
    prepare: TWO,
    claim: null,
    answer: shrinking(),
    ends: all(published(2, 10n * GIB), claimOn('n1'), bound, shrunk(1)),
    afterwards: async (scene) => {
      scene.happened.add('deleted');
      await scene.deleteAll();
      await changedTo(scene, 20n * GIB, 1);
    },
  },
  shown('after-everywhere', 'asks again for all segments after a volume without topology (M-35)', {
    prepare: TWO,
    answer: madeIn(),
    ends: all(published(2, 10n * GIB), claimOn('n1'), bound, shrunk(2)),
  }),
  shown('after-two', 'asks again for the segments of a volume in two parts', {
    prepare: nodes({ n1: zone('a'), n2: zone('b'), n3: zone('c') }),
    answer: madeIn('a', 'b'),
    ends: all(published(3, 10n * GIB), claimOn('n1'), bound, shrunk(2)),
  }),
  shown('after-unknown', 'asks for nothing after a volume in an unknown segment (M-38)', {
    prepare: TWO,
    answer: madeIn('z'),
    ends: all(published(2, 10n * GIB), claimOn('n1'), bound, shrunk(0)),
  }),
  shown('after-other-failure', 'asks again for all segments after any failed call', {
    prepare: TWO,
    answer: (call, scene) => {
      if (call.method !== 'CreateVolume') return shrinking()(call, scene);
      scene.happened.add('created');
      throw status('Internal', 'broken');
    },
    ends: all(published(2, 10n * GIB), claimOn('n1'), calls('CreateVolume', 2), shrunk(2)),
    afterwards: (scene) => scene.remove(`${scene.claims}/data`),
  }),
  shown('rescheduled', 'publishes less room before another node is chosen (M-35)', {
    prepare: TWO,
    answer: (call, scene) => {
      if (call.method === 'CreateVolume' && call.count === 1) {
        scene.happened.add('created');
        throw status('ResourceExhausted', 'no room here');
      }
      return shrinking()(call, scene);
    },
    ends: all(
      published(2, 10n * GIB),
      claimOn('n1'),
      event('ProvisioningFailed'),
      (scene) => scene.until('no node is chosen', () => chosen(scene) === undefined),
      shrunk(2),
      (scene) => choose(scene, 'n2'),
      bound,
    ),
    afterwards: (scene) => scene.deleteAll(),
  }),
];

/** In a cluster with no other nodes than the scenario's: to be played one after the other. */
export const alone: readonly Scenario[] = [
  inTurn('no-keys', 'publishes one object for a driver without keys', {
    prepare: nodes({ n1: { labels: {}, keys: [] }, n2: { labels: {}, keys: [] } }),
    ends: all(oneInterval, oneInterval),
  }),
  inTurn('some-keys', 'publishes objects of nodes with and without keys', {
    prepare: nodes({ n1: { labels: { zone: 'a' }, keys: [] }, n2: zone('b') }),
    ends: all(oneInterval, oneInterval),
  }),
  inTurn('keys-unknown', 'publishes nothing before the driver is registered', {
    prepare: nodes({ n1: { labels: { zone: 'a' }, keys: null } }),
    ends: oneInterval,
  }),
  inTurn('no-nodes', 'deletes what an earlier provisioner left (M-13)', {
    prepare: async (scene) => {
      await makeCapacity(scene, { zone: 'a' });
      await scene.marker();
    },
    ends: all(published(0), oneInterval),
  }),
];

/** With --capacity-for-immediate-binding. */
export const ofImmediate: readonly Scenario[] = [
  shown('immediate-on', 'publishes the room of a class that does not wait (M-08, M-26)', {
    class: (scene) => ({ parameters: { scenario: scene.className } }),
    prepare: TWO,
    answer: room10,
    ends: published(2, 10n * GIB),
  }),
  shown('immediate-late', 'publishes the room of a class that waits', {
    prepare: TWO,
    answer: room10,
    ends: published(2, 10n * GIB),
  }),
];

/** With a driver without topology. */
export const withoutTopology: readonly Scenario[] = [
  inTurn('plain', 'keeps the object of a driver without topology', {
    prepare: nodes({ n1: { labels: {}, keys: [] } }),
    ends: all(oneInterval, oneInterval),
  }),
  inTurn('plain-bound', 'asks again after a volume', {
    prepare: nodes({ n1: { labels: {}, keys: [] } }),
    answer: shrinking(),
    ends: all(oneInterval, claimOn('n1'), bound, oneInterval),
    afterwards: async (scene) => {
      await scene.deleteAll();
      await removeNodes(scene);
    },
  }),
];

function inTurn(name: string, title: string, more: Omit<Scenario, 'name' | 'title'>): Scenario {
  const usual = shown(`alone-${name}`, title, more);
  return {
    ...usual,
    afterwards: async (scene) => {
      await usual.afterwards?.(scene);
      await removeNodes(scene);
    },
    ...(more.afterwards === undefined ? {} : { afterwards: more.afterwards }),
  };
}

function room10(call: Parameters<CallAnswer>[0]): unknown {
  return call.method === 'GetCapacity' ? { availableCapacity: 10n * GIB } : undefined;
}

/** 10 GiB everywhere, 5 GiB once the scenario's volume is there, 20 GiB once it is gone. */
function shrinking(): CallAnswer {
  return (call, scene) => {
    if (call.method === 'CreateVolume') scene.happened.add('created');
    if (call.method !== 'GetCapacity') return undefined;
    if (scene.happened.has('deleted')) return { availableCapacity: 20n * GIB };
    return { availableCapacity: scene.happened.has('created') ? 5n * GIB : 10n * GIB };
  };
}

/** As shrinking(), with a volume that is accessible in these zones. */
function madeIn(...zones: readonly string[]): CallAnswer {
  return async (call, scene) => {
    const usual = await shrinking()(call, scene);
    if (call.method !== 'CreateVolume') return usual;
    const accessibleTopology = zones.map((value) => ({
      segments: { [keyOf(scene, 'zone')]: value },
    }));
    return volumeFor(call.create, { accessibleTopology });
  };
}

/** Creates the claim once the capacities are there. */
function claimOn(node: string): (scene: Scene) => Promise<void> {
  return async (scene) => {
    const { spec, ...metadata } = on(node)(scene);
    await scene.makeClaim('data', spec, metadata);
  };
}

/** Waits until that many objects show less room. */
function shrunk(count: number): (scene: Scene) => Promise<void> {
  return (scene) => changedTo(scene, 5n * GIB, count);
}

async function changedTo(scene: Scene, bytes: bigint, count: number): Promise<void> {
  const wanted = String(bytes / GIB);
  await scene.until(
    `${count} capacities of ${bytes}`,
    () => scene.capacities().filter(({ capacity }) => capacity === `${wanted}Gi`).length === count,
  );
  await scene.marker();
  scene.notes[`with ${wanted} GiB`] = scene
    .capacities()
    .filter(({ capacity }) => capacity === `${wanted}Gi`).length;
}
