import { VOLUMES, CLASSES } from '../../../conformance/objects.ts';
import {
  all,
  bound,
  event,
  ignored,
  refused,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import type { Scene } from '../../../harness/differential/scene.ts';
import { status } from '../../../harness/differential/scripted-driver.ts';
import { release } from './deletion.ts';

/** Longer than any of these scenarios takes. */
export const LONG_WAITS = ['--retry-interval-start=4m', '--retry-interval-max=5m'];

const EDIT = { metadata: { labels: { edited: 'yes' } } };
const editClaim = (scene: Scene): Promise<unknown> => scene.patch(`${scene.claims}/data`, EDIT);

/** Edits of claims and volumes during the back-off after a failure. */
export const edits: readonly Scenario[] = [
  {
    name: 'edit-failed',
    title: 'retries at once if a claim is edited during the back-off',
    answer: (call) => {
      if (call.method === 'CreateVolume' && call.count === 1) throw status('Internal', 'not yet');
    },
    ends: all(refused, editClaim, bound),
  },
  {
    name: 'edit-infeasible',
    title: 'does not retry an infeasible request because of an edit (P-102, R-09)',
    answer: (call) => {
      if (call.method === 'CreateVolume') throw status('InvalidArgument', 'no such pool');
    },
    ends: all(refused, editClaim, ignored, ignored),
    afterwards: stays,
  },
  {
    name: 'edit-infeasible-class',
    title: 'retries at once if the class was recreated (P-103, R-09)',
    answer: (call) => {
      if (call.method === 'CreateVolume' && call.count === 1)
        throw status('InvalidArgument', 'no such pool');
    },
    ends: all(
      refused,
      (scene) => scene.remove(`${CLASSES}/${scene.className}`),
      ignored,
      (scene) => scene.makeClass(scene.className),
      ignored,
      editClaim,
      bound,
    ),
  },
  {
    name: 'edit-volume',
    title: 'deletes again at once if a volume is edited during the back-off',
    answer: (call) => {
      if (call.method === 'DeleteVolume' && call.count === 1) throw status('Internal', 'busy');
    },
    ends: bound,
    afterwards: async (scene) => {
      await release(scene);
      await event('VolumeFailedDelete', 'busy')(scene);
      for (const { metadata } of scene.volumes())
        await scene.patch(`${VOLUMES}/${metadata.name}`, EDIT);
      await scene.until('the volume is gone', () => scene.volumes().length === 0);
    },
  },
];
