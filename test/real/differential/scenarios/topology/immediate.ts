import {
  allowed,
  keyOf,
  label,
  makeNode,
  nodes,
  on,
  register,
  removeNode,
  removeNodes,
  zone,
} from '../../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { claims } from './allowed.ts';
import {
  all,
  bound,
  ignored,
  refused,
  type Scenario,
} from '../../../../harness/differential/scenario.ts';
import { fails, failsOnce, status } from '../../../../harness/differential/scripted-driver.ts';

/** Five nodes in four parts. */
const PARTS = nodes({
  n1: zone('z1', 'a'),
  n2: zone('z1', 'a'),
  n3: zone('z2', 'b'),
  n4: zone('z3', 'c'),
  n5: zone('z4', 'd'),
});

/** Claims without a node, of classes without topologies, in a cluster with no other nodes than the
 * scenario's: to be played one after the other. */
export const immediate: readonly Scenario[] = [
  alone('parts', 'asks for all parts of the cluster (H-23, H-25)', PARTS, bound),
  alone(
    'names',
    'spreads claims of StatefulSets over the parts (H-06, H-07, H-09, H-11, H-12)',
    PARTS,
    all(bound, (scene) =>
      claims(scene, ['a-set-1', 'b-set-1', 'set-2', 'a-set-3', 'a-set-4', 'testpvc', 'plain']),
    ),
  ),
  alone('nothing', 'waits for CSINodes (H-30)', () => Promise.resolve(), all(refused, ignored)),
  alone(
    'no-csinodes',
    'waits although nodes have labels (H-30)',
    nodes({ n1: { labels: { zone: 'z1' }, keys: 'no CSINode' } }),
    all(refused, ignored),
  ),
  alone(
    'one-upgraded',
    'asks for the only part that is registered (H-32)',
    nodes({
      n1: { labels: {}, keys: [] },
      n2: { labels: {}, keys: null },
      n3: zone('z3'),
    }),
    bound,
  ),
  alone(
    'one-registered',
    'asks for parts of nodes that did not register (H-33)',
    nodes({
      n1: { labels: { zone: 'z1' }, keys: [] },
      n2: { labels: { zone: 'z2' }, keys: null },
      n3: zone('z3'),
    }),
    bound,
  ),
  alone(
    'later',
    'creates the volume once a node fits (H-28)',
    withKeysOnly,
    all(
      refused,
      (scene) => makeNode(scene, 'n1', { labels: { zone: 'z1' }, keys: 'no CSINode' }),
      bound,
    ),
  ),
  alone(
    'keys-later',
    'creates the volume once the driver is registered (H-31)',
    nodes({ n1: { labels: { zone: 'z1' }, keys: null } }),
    all(refused, (scene) => register(scene, 'n1', ['zone']), bound),
  ),
  alone(
    'label-later',
    'creates the volume once a node has the label (H-29)',
    nodes({ n1: { labels: {}, keys: ['zone'] } }),
    all(refused, (scene) => label(scene, 'n1', { zone: 'z1' }), bound),
  ),
  {
    ...alone(
      'vanished',
      'repeats the same request although nodes have vanished (H-50)',
      nodes({ n1: zone('z1', 'a'), n2: zone('z2', 'b'), n3: zone('z3', 'c') }),
      bound,
    ),
    answer: async (call, scene) => {
      if (call.method !== 'CreateVolume' || call.count > 1) return;
      await removeNode(scene, 'n1');
      await removeNode(scene, 'n2');
      throw status('Unavailable', 'not now');
    },
  },
  {
    ...alone(
      'exhausted-class',
      'asks for all parts after the chosen node had no room',
      nodes({ n1: zone('z1'), n2: zone('z2') }),
      bound,
    ),
    claim: on('n1'),
    answer: failsOnce('ResourceExhausted', 'no room here'),
  },
  {
    ...alone(
      'vanished-class',
      'asks for all parts after the chosen node has vanished',
      nodes({ n1: zone('z1'), n2: zone('z2') }),
      bound,
    ),
    claim: on('n3'),
  },
];

/** Without topologies for claims that do not wait. */
export const immediateOff: readonly Scenario[] = [
  alone('off', 'asks for no part', PARTS, bound),
  {
    ...alone('off-chosen', 'asks for the parts of a chosen node', PARTS, bound),
    claim: on('n3'),
  },
  {
    ...alone('off-allowed', 'asks for allowed parts', PARTS, bound),
    class: allowed({ zone: ['z1', 'z3'] }),
  },
  {
    ...alone('off-exhausted', 'asks for no part after a node had no room', PARTS, bound),
    claim: on('n3'),
    answer: failsOnce('ResourceExhausted', 'no room here'),
  },
];

/** Without the feature gate. */
export const gateOff: readonly Scenario[] = [
  alone('gate-plain', 'asks for no part', PARTS, bound),
  {
    ...alone('gate-chosen', 'does not look at the chosen node (E-04)', PARTS, bound),
    claim: on('nowhere'),
  },
  {
    ...alone('gate-allowed', 'does not ask for allowed parts', PARTS, bound),
    class: allowed({ zone: ['z1'] }),
  },
  {
    ...alone('gate-answer', 'writes no affinity (E-03)', PARTS, bound),
    answer: (call, scene) =>
      call.method === 'CreateVolume'
        ? {
            volume: {
              ...(call.usual as { readonly volume: object }).volume,
              accessibleTopology: [{ segments: { [keyOf(scene, 'zone')]: 'z1' } }],
            },
          }
        : undefined,
  },
  {
    ...alone('gate-exhausted', 'keeps the chosen node', PARTS, refused),
    claim: on('n1'),
    answer: fails('ResourceExhausted', 'no room here'),
  },
];

/** @param prepare creates the cluster's nodes */
function alone(
  name: string,
  title: string,
  prepare: (scene: Scene) => Promise<void>,
  ends: Scenario['ends'],
): Scenario {
  return {
    name: `alone-${name}`,
    title,
    prepare,
    ends,
    afterwards: async (scene) => {
      await scene.deleteAll();
      await removeNodes(scene);
    },
  };
}

function withKeysOnly(scene: Scene): Promise<void> {
  return makeNode(scene, 'n1', { labels: null, keys: ['zone'] });
}
