import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary = 'measures the CPU time of planning one volume';

/** Every flag of bench:planning. */
export const flags = defineFlags({
  ...processFlags,
  plans: { type: 'int', default: 50_000, min: 1_000, help: 'Plans of each kind in one round.' },
  rounds: {
    type: 'int',
    default: 5,
    min: 1,
    help: 'Rounds that are measured, after one for warming up.',
  },
});
