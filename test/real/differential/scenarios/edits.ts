import { VOLUMES, CLASSES } from '../../../conformance/objects.ts';
import type { Scene } from '../../../harness/differential/scene.ts';
import { release } from './deletion.ts';
import {
  all,
  bound,
  event,
  ignored,
  refused,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import { fails, failsOnce } from '../../../harness/differential/scripted-driver.ts';

/** Longer than any of these scenarios takes. */
export const LONG_WAITS = ['--retry-interval-start=4m', '--retry-interval-max=5m'];

const EDIT = { metadata: { labels: { edited: 'yes' } } };
const editClaim = (scene: Scene): Promise<unknown> => scene.patch(`${scene.claims}/data`, EDIT);

/** Edits of claims and volumes during the back-off after a failure. */
export const edits: readonly Scenario[] = [
  scenario('edit-failed', 'retries at once if a claim is edited during the back-off', {
    answer: failsOnce('Internal', 'not yet'),
    ends: all(refused, editClaim, bound),
  }),
  scenario('edit-infeasible', 'does not retry an infeasible request after an edit (P-102, R-09)', {
    answer: fails('InvalidArgument', 'no such pool'),
    ends: all(refused, editClaim, ignored, ignored),
    afterwards: stays,
  }),
  scenario('edit-infeasible-class', 'retries at once if the class was recreated (P-103, R-09)', {
    answer: failsOnce('InvalidArgument', 'no such pool'),
    ends: all(
      refused,
      (scene) => scene.remove(`${CLASSES}/${scene.className}`),
      ignored,
      (scene) => scene.makeClass(scene.className),
      ignored,
      editClaim,
      bound,
    ),
  }),
  scenario('edit-volume', 'deletes again at once if a volume is edited during the back-off', {
    answer: failsOnce('Internal', 'busy', 'DeleteVolume'),
    afterwards: async (scene) => {
      await release(scene);
      await event('VolumeFailedDelete', 'busy')(scene);
      for (const { metadata } of scene.volumes())
        await scene.patch(`${VOLUMES}/${metadata.name}`, EDIT);
      await scene.until('the volume is gone', () => scene.volumes().length === 0);
    },
  }),
];
