import {
  allowed,
  nodes,
  on,
  segmentsOf,
  type Segments,
  zone,
} from '../../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import {
  all,
  calls,
  ignored,
  scenario,
  type Scenario,
} from '../../../../harness/differential/scenario.ts';
import { type CallAnswer, volumeFor } from '../../../../harness/differential/scripted-driver.ts';

const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };

/** What the driver says about where a volume is accessible. */
export const answers: readonly Scenario[] = [
  answered('one', 'writes one part into the node affinity (H-03)', [{ zone: 'zone1' }]),
  answered('two-keys', 'writes two keys into one term (E-01, H-04)', [
    { zone: 'zone1', rack: 'rack2' },
  ]),
  answered('two-parts', 'writes two parts into two terms (H-05)', [
    { zone: 'zone2' },
    { zone: 'zone1' },
  ]),
  answered('twice', 'keeps a part that the driver names twice', [
    { zone: 'zone1' },
    { zone: 'zone1' },
  ]),
  answered('elsewhere', 'trusts a part that was not asked for', [{ zone: 'zone9' }]),
  answered('none', 'writes no affinity if the driver names no part (H-01, H-02)', []),
  {
    ...answered('all-empty', 'has no valid affinity for parts without segments', [{}]),
    ends: all(calls('CreateVolume', 1), ignored),
    afterwards: (scene) => scene.remove(`${scene.claims}/data`),
  },
  {
    ...answered('invalid', 'has no valid affinity for a value that is no label', [
      { zone: 'z'.repeat(300) },
    ]),
    ends: all(calls('CreateVolume', 1), ignored),
    afterwards: (scene) => scene.remove(`${scene.claims}/data`),
  },
  scenario('answer-without-question', 'writes an affinity although no part was asked for', {
    prepare: nodes({ n1: zone('zone1') }),
    class: (scene) => ({ ...LATE, ...allowed({ zone: ['zone1'] })(scene) }),
    claim: on('n1'),
    answer: accessibleIn([{ zone: 'zone1' }]),
  }),
  scenario('answer-static', 'deletes a volume with a node affinity', {
    claim: null,
    ends: async (scene) => {
      const name = `static-${scene.className}`;
      await scene.makeVolume(name, {
        spec: {
          persistentVolumeReclaimPolicy: 'Delete',
          storageClassName: scene.className,
          claimRef: { namespace: scene.namespace, name: 'data' },
          nodeAffinity: {
            required: {
              nodeSelectorTerms: [
                { matchExpressions: [{ key: 'zone', operator: 'In', values: ['a', 'b'] }] },
              ],
            },
          },
        },
      });
      await scene.makeClaim('data', { volumeName: name });
      await scene.untilBound();
      await scene.marker();
    },
  }),
];

function answered(name: string, title: string, topologies: readonly Segments[]): Scenario {
  return scenario(`answer-${name}`, title, {
    class: LATE,
    prepare: nodes({ n1: zone('zone1') }),
    claim: on('n1'),
    answer: accessibleIn(topologies),
  });
}

function accessibleIn(topologies: readonly Segments[]): CallAnswer {
  return (call, scene: Scene) =>
    call.method === 'CreateVolume'
      ? volumeFor(call.create, {
          accessibleTopology: topologies.map((segments) => ({
            segments: segmentsOf(scene, segments),
          })),
        })
      : undefined;
}
