import { driverConfigFlags } from '#src/driver-config/flags.ts';
import { defineFlags } from '#src/runtime/flags.ts';
import { redisAccessFlags } from '#src/redis/flags.ts';
import { flags as ingestFlags } from '#src/ingest/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'runs sutler on this machine with a small Kubernetes API and a sample driver, for trying it out';

/** The flags of the sandbox. It passes all its arguments on to `sutler all`, which ignores the
 * sandbox's own. */
export const flags = defineFlags({
  ...processFlags,
  'redis-url': {
    type: 'string',
    default: '',
    env: 'REDIS_URL',
    help: 'Redis for queues. Empty: the sandbox starts its own, and stops it at the end.',
  },
  'data-dir': {
    type: 'string',
    default: '.sutler/sandbox',
    help: 'Folder for all files of the sandbox, which empties it at its start.',
  },
  'driver-config': {
    ...driverConfigFlags['driver-config'],
    help: 'Refused: the sandbox has one driver of its own.',
  },
  'event-source': {
    ...ingestFlags['event-source'],
    help:
      'How ingest learns of changes: by watches, by webhooks, or by both. For webhooks the ' +
      'sandbox sends it CloudEvents.',
  },
  ...redisAccessFlags,
  examples: {
    type: 'string',
    default: '',
    help: 'Folder of YAML files with the objects to create. Empty: the folder examples/.',
  },
  once: {
    type: 'bool',
    default: false,
    help:
      'Provision the examples, delete them again, and exit with 0 if nothing is left, ' +
      'otherwise with 1.',
  },
  'api-port': {
    type: 'int',
    default: 0,
    min: 0,
    max: 65_535,
    help: 'Port of the Kubernetes API on loopback. 0: a free port.',
  },
  topology: {
    type: 'bool',
    default: true,
    help:
      'Give the sample driver topology and each node a pool of its own, one of them small. ' +
      'Off: one pool that all nodes reach.',
  },
  'driver-delay': {
    type: 'durationMs',
    default: '0s',
    min: '0s',
    help: 'Time that the sample driver takes for each volume.',
  },
});
