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
      'How changes of claims and volumes are learned: by watches, whose objects are kept in ' +
      'memory; by webhooks, without watches and without such memory; or by both.',
  },
  ...webhookFlags,
  ...perDriver({
    'resync-interval': {
      type: 'durationMs',
      min: '1s',
      help:
        'How often every object that needs work is enqueued again; delayed jobs stay delayed. ' +
        'Default: 15m; with --event-source=webhook 5m, because what no webhook told is found only ' +
        'by it. It can’t be switched off.',
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
        'A volume is reported when an audit at least this long ago found it ' +
        'without a PersistentVolume too.',
    },
    'snapshot-orphan-sweep-interval': {
      type: 'durationMs',
      default: '5m',
      help:
        'How often the leader looks for snapshots that kept our finalizer ' +
        'although no claim is restored from them. 0: never.',
      upstream: 'same',
    },
  }),
});

/** How often to resync: as --resync-interval says, or as suits the event source. */
export function resyncMs({
  eventSource,
  resyncIntervalMs,
}: Pick<Flags<typeof flags>, 'eventSource' | 'resyncIntervalMs'>): number {
  return resyncIntervalMs ?? (eventSource === 'webhook' ? 300_000 : 900_000);
}
