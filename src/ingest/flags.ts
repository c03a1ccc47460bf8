import { capacityFlags, capacityIngestFlags } from '../capacity/flags.ts';
import { driverConfigFlags } from '../driver-config/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { doubtFlags, electionFlags } from '../election/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { limitFlags, retryFlags } from '../queue/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags, type Flags, perDriver } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';
import { webhookFlags } from '../webhooks/flags.ts';

/** One line for --help and docs/flags.md. */
export const summary = 'watches claims and volumes and enqueues a job for each that needs work';

/** The flags of the ingest process. */
export const flags = defineFlags({
  ...processFlags,
  ...kubeFlags,
  ...redisFlags,
  ...driverConfigFlags,
  ...gatewayClientFlags,
  ...electionFlags,
  ...doubtFlags,
  ...limitFlags,
  ...capacityFlags,
  ...capacityIngestFlags,
  ...retryFlags,
  'event-source': {
    type: 'string',
    default: 'watch',
    values: ['watch', 'webhook', 'both'],
    help:
      'How ingest learns of changes of claims and volumes: by watches, which keep unfinished ' +
      'objects in memory; by webhooks, which need less memory; or by both.',
  },
  ...webhookFlags,
  ...perDriver({
    'resync-interval': {
      type: 'durationMs',
      min: '1s',
      help:
        'How often ingest enqueues every object that needs work; delayed jobs stay delayed. ' +
        'Default: 15m; with --event-source=webhook 5m, because only the resync finds changes that ' +
        'no webhook reported. It can’t be switched off.',
    },
    'audit-interval': {
      type: 'durationMs',
      default: '1h',
      help:
        'How often the leader looks for volumes of the driver that no PersistentVolume names, ' +
        'if the driver can list its volumes. 0: never.',
    },
    'audit-min-age': {
      type: 'durationMs',
      default: '1h',
      help:
        'The leader reports a volume only if an audit at least this long ago also found it ' +
        'without a PersistentVolume.',
    },
    'snapshot-orphan-sweep-interval': {
      type: 'durationMs',
      default: '5m',
      help:
        'How often the leader removes the provisioner’s finalizer from snapshots ' +
        'that no claim is being restored from. 0: never.',
      upstream: 'same',
    },
  }),
});

/** How often to resync: --resync-interval, or the default for the event source. */
export function resyncMs({
  eventSource,
  resyncIntervalMs,
}: Pick<Flags<typeof flags>, 'eventSource' | 'resyncIntervalMs'>): number {
  return resyncIntervalMs ?? (eventSource === 'webhook' ? 300_000 : 900_000);
}
