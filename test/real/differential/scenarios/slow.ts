import { setTimeout as delay } from 'node:timers/promises';
import { event, scenario, type Scenario } from '../../../harness/differential/scenario.ts';

/** Longer than sutler waits before it reports that a call is under way. */
const SLOW_MS = 3_000;
/** Longer than --timeout's default. */
const HANGING_MS = 13_000;

/** Slow drivers. */
export const slow: readonly Scenario[] = [
  scenario('slow-create', 'reports that a slow call is under way', {
    answer: async (call) => {
      if (call.method === 'CreateVolume') await delay(SLOW_MS);
    },
  }),
  scenario('slow-hang', 'repeats the request after its deadline, with an event', {
    answer: async (call) => {
      if (call.method === 'CreateVolume' && call.count === 1) await delay(HANGING_MS);
    },
  }),
  scenario('delete-slow', 'deletes again after the deadline, with an event', {
    answer: async (call) => {
      if (call.method === 'DeleteVolume' && call.count === 1) await delay(HANGING_MS);
    },
    afterwards: async (scene) => {
      await scene.deleteAll();
      await event('VolumeFailedDelete')(scene);
    },
  }),
];
