import {
  allowed,
  type AllowedTerm,
  choose,
  chosen,
  label,
  makeNode,
  nodes,
  on,
  register,
  removeNode,
  zone,
} from '../../../../harness/differential/cluster-nodes.ts';
import type { Fields } from '../../../../conformance/connection.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import {
  all,
  bound,
  calls,
  event,
  ignored,
  refused,
  scenario,
  type Scenario,
} from '../../../../harness/differential/scenario.ts';
import { fails, failsOnce, status } from '../../../../harness/differential/scripted-driver.ts';

const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };
const TWO_ZONES = nodes({ n1: zone('zone1'), n2: zone('zone2'), n3: zone('zone2') });
const THREE = { n1: zone('z1', 'a'), n2: zone('z2', 'b'), n3: zone('z3', 'c') };

/** Claims for which a scheduler chose a node.
 * @param prefix of the scenarios' names, which differ between sets of flags */
export function late(prefix: string): readonly Scenario[] {
  const scenarios: readonly Scenario[] = [
    scenario('one-zone', 'asks for the only zone (H-24)', {
      prepare: nodes({ n1: zone('zone1'), n2: zone('zone1'), n3: zone('zone1') }),
    }),
    scenario('zones', 'prefers the zone of the node (H-26)', {
      prepare: TWO_ZONES,
      claim: on('n2'),
    }),
    scenario('fewer-keys', 'uses the keys of the chosen node (H-27)', {
      prepare: nodes({
        n1: { labels: { zone: 'zone1', rack: 'a' }, keys: ['zone'] },
        n2: zone('zone1', 'b'),
        n3: zone('zone2', 'c'),
      }),
    }),
    scenario('order', 'sorts the parts of the cluster (H-40)', {
      prepare: nodes({ n1: zone('z2', 'a'), n2: zone('z1', 'a'), n3: zone('z1', 'b') }),
    }),
    scenario('unregistered-nodes', 'counts nodes that have labels but no driver', {
      prepare: nodes({
        n1: zone('zone1'),
        n2: { labels: { zone: 'zone2' }, keys: null },
        n3: { labels: { zone: 'zone3' }, keys: 'no CSINode' },
        n4: { labels: null, keys: ['zone'] },
        n5: { labels: { rack: 'a' }, keys: ['zone'] },
      }),
    }),
    scenario('empty-value', 'uses labels with empty and with long values', {
      prepare: nodes({ n1: zone(''), n2: zone('z'.repeat(63)), n3: zone('Z.1_a-b') }),
    }),
    scenario('no-csinode', 'gives up a node without a CSINode (B-41, H-35)', {
      prepare: nodes({ n1: { labels: { zone: 'zone1' }, keys: 'no CSINode' } }),
      ends: all(refused, noNode),
    }),
    scenario('keys-later', 'creates the volume once the driver is registered (H-36)', {
      prepare: nodes({ n1: { labels: { zone: 'zone1' }, keys: null }, n2: zone('zone2') }),
      ends: all(refused, (scene) => register(scene, 'n1', ['zone']), bound),
    }),
    scenario('label-later', 'creates the volume once the node has all labels (H-54, H-55)', {
      prepare: nodes({
        n1: { labels: { zone: 'z', rack: 'a', row: '1' }, keys: ['zone', 'rack', 'row', 'slot'] },
      }),
      ends: all(refused, (scene) => label(scene, 'n1', { slot: '7' }), bound),
    }),
    scenario('node-later', 'creates the volume once the Node exists (R-08)', {
      prepare: nodes({ n1: { labels: null, keys: ['zone'] } }),
      ends: all(
        refused,
        (scene) => makeNode(scene, 'n1', { labels: { zone: 'a' }, keys: 'no CSINode' }),
        bound,
      ),
    }),
    scenario('immediate-class', 'uses the chosen node of a claim whose class does not wait', {
      class: {},
      prepare: TWO_ZONES,
      claim: on('n2'),
    }),
    ...withAllowed,
    ...afterChanges,
    ...exhausted,
  ];
  return scenarios.map((scenario) => ({
    class: LATE,
    claim: on('n1'),
    ...scenario,
    name: `${prefix}-${scenario.name}`,
  }));
}

const GRID = { zone: ['zone1', 'zone2'], rack: ['rackA', 'rackB'] };

const withAllowed: readonly Scenario[] = [
  scenario('allowed', 'prefers the allowed part that the node is in (H-37)', {
    class: lateIn(GRID),
    prepare: nodes({ n1: zone('zone2', 'rackA'), n2: zone('zone3', 'rackC') }),
  }),
  scenario('allowed-fewer-keys', 'accepts a node with more keys than are allowed (H-43)', {
    class: lateIn({ disk: ['ssd'], zone: ['zone1'] }),
    prepare: nodes({ n1: { labels: { zone: 'zone1', rack: 'rack1', disk: 'ssd' } } }),
  }),
  scenario('allowed-two', 'prefers the first allowed part that contains the node', {
    class: lateIn({ zone: ['zone2'] }, { rack: ['a'] }, { zone: ['zone1'], rack: ['a'] }),
    prepare: nodes({ n1: zone('zone1', 'a') }),
  }),
  scenario('not-allowed', 'refuses a node that is not allowed (H-42)', {
    class: lateIn({ zone: ['zone1', 'zone3'] }, { rack: ['x'] }),
    prepare: TWO_ZONES,
    claim: on('n2'),
    ends: all(refused, ignored),
  }),
  scenario('not-a-prefix', 'compares whole values (H-44)', {
    class: lateIn({ zone: ['zone1'] }),
    prepare: nodes({ n1: zone('zone10') }),
    ends: all(refused, ignored),
  }),
  scenario('allowed-no-csinode', 'gives up a node without CSINode of allowed parts (H-38)', {
    class: lateIn(GRID),
    prepare: nodes({ n1: { labels: { zone: 'zone1', rack: 'rackA' }, keys: 'no CSINode' } }),
    ends: all(refused, noNode),
  }),
  scenario('allowed-other-keys', 'refuses allowed keys that the driver does not have', {
    class: lateIn({ disk: ['ssd'] }),
    prepare: TWO_ZONES,
    ends: all(refused, ignored),
  }),
];

const afterChanges: readonly Scenario[] = [
  scenario('vanished', 'repeats the same request although the node has vanished (H-45)', {
    prepare: nodes(THREE),
    claim: on('n2'),
    answer: async (call, scene) => {
      if (call.method !== 'CreateVolume' || call.count > 1) return;
      await removeNode(scene, 'n2');
      await removeNode(scene, 'n1');
      throw status('Unavailable', 'not now');
    },
  }),
  scenario('vanished-allowed', 'repeats the same request of an allowed part (H-47, H-49)', {
    class: lateIn({ zone: ['z1', 'z2'] }),
    prepare: nodes(THREE),
    claim: on('n2'),
    answer: async (call, scene) => {
      if (call.method !== 'CreateVolume' || call.count > 1) return;
      await removeNode(scene, 'n2');
      throw status('Aborted', 'operation pending');
    },
  }),
  scenario('relabelled', 'repeats the same request although the labels have changed', {
    prepare: nodes(THREE),
    claim: on('n2'),
    answer: async (call, scene) => {
      if (call.method !== 'CreateVolume' || call.count > 1) return;
      await label(scene, 'n2', { zone: 'z9' });
      throw status('DeadlineExceeded', 'too slow');
    },
  }),
  scenario('vanished-final', 'gives up a vanished node after a final error', {
    prepare: nodes(THREE),
    claim: on('n2'),
    answer: async (call, scene) => {
      if (call.method !== 'CreateVolume' || call.count > 1) return;
      await removeNode(scene, 'n2');
      throw status('Internal', 'broken');
    },
    ends: all(event('ProvisioningFailed', 'failed to get selected CSINode'), noNode),
  }),
  scenario('relabelled-final', 'asks for the new labels after a final error', {
    prepare: nodes(THREE),
    claim: on('n2'),
    answer: async (call, scene) => {
      if (call.method !== 'CreateVolume' || call.count > 1) return;
      await label(scene, 'n2', { zone: 'z9' });
      await scene.marker();
      throw status('Internal', 'broken');
    },
  }),
  scenario('twice-chosen', 'asks for another node after the first was given up', {
    prepare: nodes({ n1: { labels: null, keys: 'no CSINode' }, n2: zone('zone2') }),
    ends: all(refused, noNode, (scene) => choose(scene, 'n2'), bound),
  }),
];

const exhausted: readonly Scenario[] = [
  scenario('exhausted', 'gives up a node without room, and creates the volume on another (R-32)', {
    prepare: nodes({ n1: zone('zone1'), n2: zone('zone2') }),
    answer: failsOnce('ResourceExhausted', 'no room here'),
    ends: all(refused, noNode, (scene) => choose(scene, 'n2'), bound),
  }),
  scenario('exhausted-allowed', 'gives up the node of a claim with allowed parts', {
    class: lateIn({ zone: ['zone1', 'zone2'] }),
    prepare: nodes({ n1: zone('zone1'), n2: zone('zone2') }),
    answer: fails('ResourceExhausted', 'no room here'),
    ends: all(refused, noNode, ignored),
  }),
  ...(['Unavailable', 'Internal', 'InvalidArgument', 'OutOfRange'] as const).map((code): Scenario =>
    scenario(`keeps-${code.toLowerCase()}`, `keeps the node after ${code} (E-05)`, {
      prepare: nodes({ n1: zone('zone1') }),
      answer: fails(code, 'no'),
      ends: code === 'InvalidArgument' ? refused : all(refused, calls('CreateVolume', 2)),
    }),
  ),
];

function lateIn(...terms: readonly AllowedTerm[]): (scene: Scene) => Fields {
  return (scene: Scene) => ({ ...LATE, ...allowed(...terms)(scene) });
}

function noNode(scene: Scene): Promise<void> {
  return scene.until('no node is chosen', () => chosen(scene) === undefined);
}
