import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary =
  'measures how soon sutler stops and starts calling the driver as the Lease changes hands';

/** Every flag of bench:hand-over. */
export const flags = defineFlags({
  ...processFlags,
  rounds: { type: 'int', default: 3, min: 1, help: 'Rounds of each kind.' },
  claims: {
    type: 'int',
    default: 400,
    min: 1,
    help: 'Claims of each round. Some must still wait when the Lease changes hands.',
  },
  'driver-delay-ms': { type: 'int', default: 100, min: 0, help: 'Time of each call.' },
  'worker-threads': { type: 'int', default: 10, min: 1, help: 'Calls at once.' },
});
