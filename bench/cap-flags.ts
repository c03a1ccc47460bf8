import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary = 'compares the rates of workers that have more runs than the gateway lets by';

/** Every flag of bench:cap. */
export const flags = defineFlags({
  ...processFlags,
  cap: {
    type: 'int',
    default: 20,
    min: 1,
    help: 'Creations, and as many deletions, that the gateway has at the driver at once.',
  },
  'worker-threads': {
    type: 'strings',
    default: '20,40,100,300',
    help: 'Values of --worker-threads to compare. The first one is what the others should reach.',
  },
  workers: { type: 'int', default: 1, min: 1, help: 'Jobs processes.' },
  claims: { type: 'int', default: 1000, min: 1, help: 'Claims of each burst.' },
  'driver-delay-ms': {
    type: 'int',
    default: 200,
    min: 0,
    help: 'Time of each call. Long enough that the cap sets the rate, and not the machine.',
  },
  patience: { type: 'durationMs', default: '5m', help: 'Time limit of one burst.' },
});
