import { capacityFlags, capacityWorkFlags } from '../capacity/flags.ts';
import { driverConfigFlags } from '../driver-config/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { waitFlags } from '../queue/flags.ts';
import { recordFlags, recordKeyFlags } from '../records/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags, perDriver } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';
import { provisioningFlags } from '../volumes/flags.ts';

/** One line for --help and docs/flags.md. */
export const summary = 'takes jobs from the queues and provisions or deletes volumes';

/** Every flag of the jobs process. */
export const flags = defineFlags({
  ...processFlags,
  ...kubeFlags,
  ...redisFlags,
  'redis-without-aof': {
    type: 'bool',
    default: false,
    help:
      'Ready although Redis keeps no append-only file: when it restarts it forgets volume ' +
      'records, and of a claim that is deleted then a volume may be left in the storage. ' +
      'Not needed with --claim-finalizer.',
  },
  ...driverConfigFlags,
  ...gatewayClientFlags,
  ...provisioningFlags,
  ...recordFlags,
  ...waitFlags,
  ...capacityFlags,
  ...capacityWorkFlags,
  ...perDriver({
    'worker-threads': {
      type: 'int',
      default: 100,
      min: 1,
      help: 'Claims that this process works on at once, and the same number of volumes.',
      upstream: 'same; 0, which starts no worker, is refused here',
    },
    'retry-interval-start': {
      type: 'durationMs',
      default: '1s',
      min: '1ms',
      help: 'Delay after the first failure; doubles with each further one, and is varied by up to a quarter.',
      upstream: 'same',
    },
    'retry-interval-max': {
      type: 'durationMs',
      default: '5m',
      min: '1ms',
      help: 'Longest delay after a failure, before it is varied.',
      upstream: 'same',
    },
    'lock-duration': {
      type: 'durationMs',
      default: '30s',
      min: '1s',
      help:
        'How long a job stays with a worker that died. Another worker takes it within a third of ' +
        'that time after it, 10 s at most (snapshots: 60 s).',
    },
    'settle-time': {
      type: 'durationMs',
      default: '1m',
      help: 'A refusal proves that no volume exists only this long after the last ambiguous call.',
    },
    'node-deployment-immediate-binding': {
      type: 'bool',
      default: true,
      help:
        'With --node-deployment, chooses a node with room for a claim whose class binds at once. ' +
        'false: such a claim waits until something else selects its node.',
      upstream: 'same; there the nodes compete for the claim',
    },
    'claim-finalizer': {
      type: 'bool',
      default: false,
      help:
        'Keeps a finalizer on a claim while its volume record is open, in case Redis loses its ' +
        'data. Costs two API writes per claim.',
    },
  }),
  'leader-election-namespace': electionFlags['leader-election-namespace'],
  'cloning-protection-threads': {
    type: 'int',
    default: 1,
    min: 0,
    help: 'Has no effect: jobs of claims also release sources of clones.',
    upstream: 'same name; no workers of its own here',
  },
  ...recordKeyFlags,
  'grace-period': {
    type: 'durationMs',
    default: '25s',
    min: '0s',
    help: 'How long calls under way may go on after SIGTERM.',
  },
});
