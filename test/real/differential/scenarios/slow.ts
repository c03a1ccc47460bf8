import { setTimeout as delay } from 'node:timers/promises';
import { bound, event, type Scenario } from '../../../harness/differential/scenario.ts';

/** Longer than sutler waits before it reports that a call is under way. */
const SLOW_MS = 3_000;
/** Longer than --timeout's default. */
const HANGING_MS = 13_000;

/** Slow drivers. */
export const slow: readonly Scenario[] = [
  {
    name: 'slow-create',
    title: 'reports that a slow call is under way',
    answer: async (call) => {
      if (call.method === 'CreateVolume') await delay(SLOW_MS);
    },
    ends: bound,
  },
  {
    name: 'slow-hang',
    title: 'repeats the request after its deadline, with an event',
    answer: async (call) => {
      if (call.method === 'CreateVolume' && call.count === 1) await delay(HANGING_MS);
    },
    ends: bound,
  },
  {
    name: 'delete-slow',
    title: 'deletes again after the deadline, with an event',
    answer: async (call) => {
      if (call.method === 'DeleteVolume' && call.count === 1) await delay(HANGING_MS);
    },
    ends: bound,
    afterwards: async (scene) => {
      await scene.deleteAll();
      await event('VolumeFailedDelete')(scene);
    },
  },
];
