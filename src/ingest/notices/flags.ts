import { defineFlags, type Flags, perDriver } from '../../runtime/flags.ts';

/** Flags that say how ingest learns of claims and volumes. */
export const hintFlags = defineFlags({
  'event-source': {
    type: 'string',
    default: 'watch',
    values: ['watch', 'webhook', 'both'],
    help:
      'How changes of claims and volumes are learned: by watches, whose objects are kept in ' +
      'memory; by webhooks, without watches and without such memory; or by both.',
  },
  ...perDriver({
    'resync-interval': {
      type: 'durationMs',
      min: '1s',
      help:
        'How often every object that needs work is enqueued again; delayed jobs stay delayed. ' +
        'Default: 15m; with --event-source=webhook 5m, because what no webhook told is found only ' +
        'by it. It can’t be switched off.',
    },
  }),
});

const RESYNC_MS = { watched: 900_000, unwatched: 300_000 } as const;

/** How often to resync: as --resync-interval says, or as suits the event source. */
export function chooseResyncMs(flags: Flags<typeof hintFlags>): number {
  const { eventSource, resyncIntervalMs } = flags;
  return resyncIntervalMs ?? RESYNC_MS[eventSource === 'webhook' ? 'unwatched' : 'watched'];
}
