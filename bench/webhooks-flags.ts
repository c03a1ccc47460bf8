import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary = 'measures how many webhooks are taken, and what bad ones cost';

/** Every flag of bench:webhooks. */
export const flags = defineFlags({
  ...processFlags,
  time: { type: 'durationMs', default: '5s', min: '1s', help: 'Time of each scenario.' },
});
