import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { waitFlags } from '../queue/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { recordFlags } from '../records/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';
import { provisioningFlags } from '../volumes/flags.ts';

/** One line for --help and docs/flags.md. */
export const summary = 'takes jobs from the queues and provisions or deletes volumes';

/** Every flag of the jobs process. */
export const flags = defineFlags({
  ...processFlags,
  ...kubeFlags,
  ...redisFlags,
  ...gatewayClientFlags,
  ...provisioningFlags,
  ...recordFlags,
  ...waitFlags,
  'worker-threads': {
    type: 'int',
    default: 100,
    min: 1,
    help: 'Claims, and as many volumes, worked on at once by this process.',
    upstream: 'same; 0, which starts no worker, is refused here',
  },
  'cloning-protection-threads': {
    type: 'int',
    default: 1,
    min: 0,
    help: 'Accepted and not needed: a claim that clones are made from is let go by its own job, so --worker-threads counts.',
    upstream: 'same name; no workers of its own here',
  },
  'retry-interval-start': {
    type: 'durationMs',
    default: '1s',
    min: '1ms',
    help: 'First pause after a failure; doubles with each one, with jitter.',
    upstream: 'same',
  },
  'retry-interval-max': {
    type: 'durationMs',
    default: '5m',
    min: '1ms',
    help: 'Longest pause after a failure.',
    upstream: 'same',
  },
  'lock-duration': {
    type: 'durationMs',
    default: '30s',
    min: '1s',
    help: 'How long a job stays with a worker that died, before another takes it.',
  },
  'settle-time': {
    type: 'durationMs',
    default: '1m',
    help: 'How long after a call of unknown end a refusal of the driver proves that no volume was made.',
  },
  'claim-finalizer': {
    type: 'bool',
    default: false,
    help: 'Keep a finalizer on a claim while its volume record is open: two API writes per claim, for those who do not want to rely on Redis alone.',
  },
  'grace-period': {
    type: 'durationMs',
    default: '25s',
    min: '0s',
    help: 'How long calls under way may take to end after SIGTERM.',
  },
});
