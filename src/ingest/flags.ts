import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { waitFlags } from '../queue/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { recordFlags } from '../records/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary = 'watches claims and volumes and turns what needs work into jobs';

/** Every flag of the ingest process. */
export const flags = defineFlags({
  ...processFlags,
  ...kubeFlags,
  ...redisFlags,
  ...gatewayClientFlags,
  ...electionFlags,
  ...recordFlags,
  ...waitFlags,
  'audit-interval': {
    type: 'durationMs',
    default: '1h',
    help: 'How often the leader compares the driver’s volumes with what the cluster names, where the driver can list them. 0: never.',
  },
  'audit-min-age': {
    type: 'durationMs',
    default: '1h',
    help: 'How long ago an earlier audit must have found a volume unknown before it is reported.',
  },
  'snapshot-orphan-sweep-interval': {
    type: 'durationMs',
    default: '5m',
    help: 'How often the leader looks for snapshots that keep our finalizer although no claim is restored from them. 0: never.',
    upstream: 'same',
  },
  'resync-interval': {
    type: 'durationMs',
    default: '15m',
    min: '1s',
    help: 'How often everything outstanding is enqueued once more; waits are not shortened by it.',
  },
});
