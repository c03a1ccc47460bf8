import { allowed, type AllowedTerm } from '../../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import {
  all,
  bound,
  calls,
  refused,
  scenario,
  type Scenario,
} from '../../../../harness/differential/scenario.ts';
import { fails, status } from '../../../../harness/differential/scripted-driver.ts';

const FOUR = { zone: ['z1', 'z2', 'z3', 'z4'] };

/** Claims without a node, of classes with allowedTopologies. */
export function allowedOnly(prefix: string): readonly Scenario[] {
  const scenarios: readonly Scenario[] = [
    made('one', 'asks for one allowed part (H-13)', [{ zone: ['zone1'] }]),
    made('two', 'asks for two values (H-14)', [{ zone: ['zone1', 'zone2'] }]),
    made('and', 'combines two keys (H-15)', [{ zone: ['zone1'], rack: ['a'] }]),
    made('product', 'combines all values of two keys (H-16, H-17)', [
      { zone: ['zone1', 'zone2'], rack: ['b', 'a'] },
    ]),
    made('or', 'keeps alternatives apart (H-18)', [{ zone: ['zone1'] }, { rack: ['a'] }]),
    made('same-key', 'keeps values of one key apart (H-19)', [
      { zone: ['zone2'] },
      { zone: ['zone1'] },
    ]),
    made('twice', 'asks for no part twice (H-20)', [
      { zone: ['zone1', 'zone2'] },
      { zone: ['zone2', 'zone3'] },
    ]),
    made('subset', 'keeps a part that contains another (H-21)', [
      { zone: ['zone1'] },
      { zone: ['zone1', 'zone2'], rack: ['a', 'b'] },
    ]),
    made('overlap', 'leaves out an exact repetition (H-22)', [
      { rack: ['b'], zone: ['zone1'] },
      { zone: ['zone1', 'zone2'], rack: ['a', 'b'] },
    ]),
    scenario('bytes', 'sorts values by their bytes', {
      class: allowed({ zone: ['zone10', 'zone9', 'Zone1', 'zone-1', 'zone.1', 'zone_1', 'zone'] }),
    }),
    scenario('names', 'spreads claims of StatefulSets over the parts (H-06, H-09, H-11, H-12)', {
      class: allowed(FOUR),
      ends: all(bound, (scene) =>
        claims(scene, [
          'a-set-0',
          'a-set-1',
          'b-set-1',
          'set-2',
          'a-set-3',
          'a-set-4',
          'other',
          '7',
          'a-b-c-10',
          'a-01',
          'a-4294967295',
          'a-4294967296',
          'a.b-1',
        ]),
      ),
    }),
    scenario('exhausted', 'repeats the call if no part has room (E-21)', {
      class: allowed({ zone: ['zone1'] }),
      answer: fails('ResourceExhausted', 'no room'),
      ends: all(refused, calls('CreateVolume', 2)),
    }),
    scenario('class-again', 'repeats a call with its parts although the class has others', {
      class: allowed({ zone: ['zone1', 'zone2'] }),
      answer: async (call, scene) => {
        if (call.method !== 'CreateVolume' || call.count > 1) return;
        await scene.remove(`/apis/storage.k8s.io/v1/storageclasses/${scene.className}`);
        await scene.makeClass(scene.className, allowed({ zone: ['zone3'] })(scene));
        await scene.marker();
        throw status('Internal', 'once more');
      },
    }),
  ];
  return scenarios.map((scenario) => ({ ...scenario, name: `${prefix}-${scenario.name}` }));
}

function made(name: string, title: string, terms: readonly AllowedTerm[]): Scenario {
  return scenario(name, title, { class: allowed(...terms) });
}

/** Creates further claims, and waits until they are Bound. */
export async function claims(scene: Scene, names: readonly string[]): Promise<void> {
  for (const name of names) await scene.makeClaim(name);
  await scene.until('all are Bound', () =>
    names.every((name) => scene.claim(name)?.status?.phase === 'Bound'),
  );
}
