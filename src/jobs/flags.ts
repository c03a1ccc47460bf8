import { capacityFlags } from '../capacity/flags.ts';
import { driverConfigFlags } from '../driver-config/flags.ts';
import { doubtFlags, electionFlags } from '../election/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { retryFlags } from '../queue/flags.ts';
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
  ...driverConfigFlags,
  ...gatewayClientFlags,
  ...provisioningFlags,
  ...doubtFlags,
  ...capacityFlags,
  ...retryFlags,
  ...perDriver({
    'worker-threads': {
      type: 'int',
      default: 100,
      min: 1,
      help: 'How many claims this process works on at once. Volumes have the same limit.',
      upstream: 'same; 0, which starts no worker, is refused here',
    },
    'lock-duration': {
      type: 'durationMs',
      default: '30s',
      min: '1s',
      help:
        'How long a job stays locked after its worker has died. Then another worker takes it ' +
        'within a third of that time, and within 10 s.',
    },
    'node-deployment-immediate-binding': {
      type: 'bool',
      default: true,
      help:
        'In sutler all with --node-deployment: selects this node for a claim whose class binds at ' +
        'once, if the node has room. false: the claim waits until something else selects a node.',
      upstream: 'same; there each node waits before it takes a claim',
    },
  }),
  'leader-election-namespace': electionFlags['leader-election-namespace'],
  'cloning-protection-threads': {
    type: 'int',
    default: 1,
    min: 0,
    help: 'Has no effect: the jobs of claims also release the sources of clones.',
    upstream: 'same name; no workers of its own here',
  },
  'grace-period': {
    type: 'durationMs',
    default: '25s',
    min: '0s',
    help: 'How long the calls under way may continue after SIGTERM.',
  },
});
