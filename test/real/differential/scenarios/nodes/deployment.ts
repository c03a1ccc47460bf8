import { setTimeout as delay } from 'node:timers/promises';
import { GIB } from '../../../../harness/differential/capacity-objects.ts';
import { nodes, on as onOwn, stageNode } from '../../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { SELECTED_NODE } from '../../../../harness/differential/stage-objects.ts';
import {
  all,
  bound,
  calls,
  type ClaimShape,
  ignored,
  refused,
  released,
  type Scenario,
} from '../../../../harness/differential/scenario.ts';
import {
  type CallAnswer,
  fails,
  failsOnce,
  SHARED_KEYS,
  status,
} from '../../../../harness/differential/scripted-driver.ts';

const NODE = `${SHARED_KEYS}node`;

/** Two nodes with a driver of their own. */
export const NODES = { n1: { [NODE]: 'n1' }, n2: { [NODE]: 'n2' } };

/** A driver on each node. */
export const deployment: readonly Scenario[] = [
  late('late', 'creates the volume on the chosen node (B-28)', { ends: bound }),
  late('elsewhere', 'does nothing for a node without a provisioner (B-30)', {
    prepare: nodes({ n3: { labels: { [NODE]: 'n3' } } }),
    claim: onOwn('n3'),
    ends: ignored,
  }),
  late('gone', 'gives up a node that does not exist', { claim: on('n3'), ends: ignored }),
  late('waits', 'does nothing before a node is chosen (B-29)', { claim: {}, ends: ignored }),
  late('chosen', 'creates the volume of a claim whose class does not wait (B-31)', {
    class: named({}),
    claim: on('n2'),
    ends: bound,
  }),
  late('exhausted-then', 'gives up a node without room for the next one (R-32)', {
    answer: (call) => {
      if (call.method === 'CreateVolume' && call.node?.[NODE] === 'n1')
        throw status('ResourceExhausted', 'no room here');
    },
    ends: all(refused, noNode, choose('n2'), bound),
  }),
  late('fails', 'keeps the node after another error (R-32)', {
    answer: fails('Internal', 'broken'),
    ends: all(refused, calls('CreateVolume', 2)),
  }),
  late('unavailable', 'repeats a call on the same node', {
    answer: failsOnce('Unavailable', 'not now'),
    ends: bound,
  }),
  immediate('one-fits', 'chooses the node that has room (B-32, B-33)', {
    answer: free({ n1: 1n, n2: 5n * GIB }),
    ends: bound,
  }),
  immediate('none-fits', 'does nothing where no node has room (B-33)', {
    answer: free({ n1: 1n, n2: 0n }),
    ends: quiet,
  }),
  immediate('just-fits', 'takes exactly the room that there is', {
    answer: free({ n1: GIB - 1n, n2: GIB }),
    ends: bound,
  }),
  immediate('room-later', 'creates the volume once a node has room', {
    answer: (call, scene) =>
      call.method === 'GetCapacity'
        ? { availableCapacity: scene.happened.has('room') && call.node?.[NODE] === 'n2' ? GIB : 0n }
        : undefined,
    ends: async (scene) => {
      await quiet(scene);
      scene.happened.add('room');
      await boundAfterChanges(scene);
    },
  }),
  immediate('allowed', 'chooses a node that the class allows (B-34, B-35)', {
    class: named({ allowedTopologies: only('n2') }),
    ends: bound,
  }),
  immediate('none-allowed', 'does nothing where the class allows no node (B-35)', {
    class: named({ allowedTopologies: only('n7') }),
    ends: quiet,
  }),
  immediate('exhausted-once', 'tries again where the chosen node had no room', {
    answer: (call) => {
      if (call.method === 'GetCapacity')
        return { availableCapacity: call.node?.[NODE] === 'n2' ? 5n * GIB : 0n };
      if (call.method === 'CreateVolume' && call.count === 1)
        throw status('ResourceExhausted', 'no room after all');
      return undefined;
    },
    ends: boundAfterChanges,
  }),
  immediate('capacity-fails', 'chooses a node that can not tell its room', {
    answer: (call) => {
      if (call.method !== 'GetCapacity') return undefined;
      if (call.node?.[NODE] === 'n1') return { availableCapacity: 0n };
      throw status('Unimplemented', 'no idea');
    },
    ends: bound,
  }),
  late('delete-elsewhere', 'does not delete the volume of a node without a driver (F-17)', {
    claim: null,
    ends: staticVolume('n7'),
    afterwards: async (scene) => {
      await scene.remove(`${scene.claims}/data`);
      await released(scene);
      await ignored(scene);
    },
  }),
  late('delete-here', 'deletes a volume on its node (F-18)', {
    claim: null,
    ends: staticVolume('n2'),
  }),
];

/** With --node-deployment-immediate-binding=false. */
export const notImmediate: readonly Scenario[] = [
  immediate('off', 'does nothing for a claim that does not wait', { ends: ignored }),
  immediate('off-chosen', 'creates the volume once somebody chose a node', {
    ends: all(ignored, choose('n2'), bound),
  }),
  late('off-late', 'creates the volume of a claim that waits', { ends: bound }),
];

type Rest = Omit<Scenario, 'name' | 'title'>;

function late(name: string, title: string, more: Rest): Scenario {
  const cls = named({ volumeBindingMode: 'WaitForFirstConsumer' });
  return { name: `node-${name}`, title, class: cls, claim: on('n1'), ...more };
}

function immediate(name: string, title: string, more: Rest): Scenario {
  const answer = free({ n1: 0n, n2: 5n * GIB });
  return { name: `node-now-${name}`, title, class: named({}), answer, ...more };
}

/** A class by which questions for capacity name the scenario. */
function named(fields: object): (scene: Scene) => Readonly<Record<string, unknown>> {
  return (scene) => ({ parameters: { scenario: scene.className }, ...fields });
}

function on(short: string): (scene: Scene) => ClaimShape {
  return (scene) => ({ annotations: { [SELECTED_NODE]: stageNode(scene, short) } });
}

function choose(short: string): (scene: Scene) => Promise<unknown> {
  return (scene) =>
    scene.patch(`${scene.claims}/data`, {
      metadata: { annotations: { [SELECTED_NODE]: stageNode(scene, short) } },
    });
}

function noNode(scene: Scene): Promise<void> {
  return scene.until(
    'no node is chosen',
    () => scene.claim()?.metadata.annotations?.[SELECTED_NODE] === undefined,
  );
}

function only(value: string): readonly object[] {
  return [{ matchLabelExpressions: [{ key: NODE, values: [value] }] }];
}

/** Answers GetCapacity with the room of the node that is asked. */
function free(byNode: Readonly<Record<string, bigint>>): CallAnswer {
  return (call) =>
    call.method === 'GetCapacity'
      ? { availableCapacity: byNode[call.node?.[NODE] ?? ''] ?? 0n }
      : undefined;
}

/** Changes the claim until it is Bound: upstream may look at it again only when it changes. */
async function boundAfterChanges(scene: Scene): Promise<void> {
  const path = `${scene.claims}/data`;
  await scene.until('the claim is Bound', async () => {
    await scene.patch(path, { metadata: { labels: { again: 'yes' } } });
    await scene.patch(path, { metadata: { labels: { again: null } } });
    await delay(2_000);
    return scene.claim()?.status?.phase === 'Bound';
  });
  await bound(scene);
}

/** Waits longer than a node waits before it takes a claim. */
async function quiet(scene: Scene): Promise<void> {
  await delay(3_000);
  await scene.marker();
}

/** A volume that is bound, and accessible from one node. */
function staticVolume(value: string): (scene: Scene) => Promise<void> {
  return async (scene) => {
    const name = `static-${scene.className}`;
    await scene.makeVolume(name, {
      spec: {
        persistentVolumeReclaimPolicy: 'Delete',
        storageClassName: scene.className,
        claimRef: { namespace: scene.namespace, name: 'data' },
        nodeAffinity: {
          required: {
            nodeSelectorTerms: [
              { matchExpressions: [{ key: NODE, operator: 'In', values: [value] }] },
            ],
          },
        },
      },
    });
    await scene.makeClaim('data', { volumeName: name });
    await scene.untilBound();
    await scene.marker();
  };
}
