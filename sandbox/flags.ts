import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'everything on this machine, with a small Kubernetes API and a sample driver: for trying and testing';

/** Flags that only the sandbox knows; it does not pass them on. */
export const sandboxOnlyFlags = defineFlags({
  examples: {
    type: 'string',
    default: '',
    help: 'Folder of YAML files with the objects to create. Empty: the examples of this package.',
  },
  once: {
    type: 'bool',
    default: false,
    help: 'Provision the examples, delete them again, end with 0 if nothing is left over, else with 1.',
  },
  'api-port': {
    type: 'int',
    default: 0,
    min: 0,
    max: 65_535,
    help: 'Port of the Kubernetes API on loopback; 0: a free one.',
  },
  'driver-delay': {
    type: 'durationMs',
    default: '0s',
    min: '0s',
    help: 'How long the sample driver takes for each volume.',
  },
});

/** The flags of the sandbox. Every other flag goes on to the processes that it starts. */
export const flags = defineFlags({
  ...processFlags,
  'redis-url': {
    type: 'string',
    default: '',
    env: 'REDIS_URL',
    help: 'Redis that holds queues and volume records. Empty: a redis-server of our own in --data-dir.',
  },
  'data-dir': {
    type: 'string',
    default: '.sutler/sandbox',
    help: 'Folder for everything that is written; emptied at start.',
  },
  ...sandboxOnlyFlags,
});
