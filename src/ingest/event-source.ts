import type { Connections } from '../connections/open-connections.ts';
import { openRedis } from '../redis/connection.ts';
import { systemClock } from '../runtime/clock.ts';
import { Listeners } from '../runtime/listeners.ts';
import { redisNoticeStream } from '../webhooks/notices.ts';
import type { Context } from './driver-deps.ts';
import { type Look, LookQueue } from './notices/look-queue.ts';
import { NoticeReader } from './notices/notice-reader.ts';
import { PacedLists } from './notices/paced-lists.ts';
import { WebhookSource } from './notices/webhook-source.ts';
import { Informers } from './objects/informers.ts';
import { type ObjectSource, ServedDrivers } from './objects/object-source.ts';

/** Where this process learns of claims, classes and volumes, as --event-source says. */
export interface EventSource {
  readonly source: ObjectSource;
  /** Absent with `webhook`. */
  readonly informers?: Informers;
  /** Notified when it changed which PVs share a handle, where all PVs are watched. */
  readonly sharing: Listeners<void>;
  /** Reads change notices; absent with `watch`. */
  readonly reader?: NoticeReader;
}

type SharedContext = Omit<Context, 'stopping'>;

/** Begins to learn of claims, classes and volumes, for all drivers. */
export function openEventSource(context: SharedContext, connections: Connections): EventSource {
  const { flags, closers, health, log } = context;
  if (flags.eventSource !== 'watch' && flags.webhookAddress === '' && flags.admissionAddress === '')
    log.warn(NO_RECEIVER);
  const eventSource =
    flags.eventSource === 'webhook'
      ? openWebhookSource(context, connections)
      : openInformers(context, connections);
  const { source } = eventSource;
  closers.add('objects', () => source.stop());
  health.ready('kubernetes', () => source.trouble);
  return eventSource;
}

const NO_RECEIVER =
  'this ingest receives no webhooks; unless another one does, changes of claims and volumes are ' +
  'found by their watch, if there is one, and by the resync (set --webhook-address or ' +
  '--admission-address)';

function openInformers(context: SharedContext, connections: Connections): EventSource {
  const { flags, log, metrics } = context;
  const sharing = new Listeners<void>();
  const drivers = new ServedDrivers();
  const informers = new Informers({
    client: connections.kube,
    drivers,
    onSharing: () => sharing.notify(),
    log,
    metrics,
  });
  const watching = { source: informers, informers, sharing };
  if (flags.eventSource === 'watch') return watching;
  const looked = new Listeners<Look>();
  looked.subscribe((look) => informers.noticed(look.target.resource, look.object));
  return { ...watching, reader: openReader(context, connections, { drivers, looked }) };
}

/** No watch of claims and volumes, and no cache of them. */
function openWebhookSource(context: SharedContext, connections: Connections): EventSource {
  const { log, metrics } = context;
  const client = connections.kube;
  const drivers = new ServedDrivers();
  const looked = new Listeners<Look>();
  const lists = new PacedLists({ client, clock: systemClock, log });
  const reader = openReader(context, connections, { drivers, looked });
  const source = new WebhookSource({
    client,
    lists,
    drivers,
    waitUntilReading: (signal) => reader.waitUntilReading(signal),
    log,
    metrics,
  });
  looked.subscribe((look) => source.looked(look));
  return { source, sharing: new Listeners(), reader };
}

/** @param o.looked  notified of each object that was read because a notice named it */
function openReader(
  { flags, closers, health, log, metrics }: SharedContext,
  { kube: client, redisAccess: access }: Connections,
  { drivers, looked }: { readonly drivers: ServedDrivers; readonly looked: Listeners<Look> },
): NoticeReader {
  const { redisUrl: url, redisPrefix } = flags;
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-notices', log });
  const onLook = (look: Look): void => looked.notify(look);
  const looks = new LookQueue({ client, onLook, clock: systemClock, log, metrics });
  const stream = redisNoticeStream(link.redis, redisPrefix);
  const isLeading = (): boolean => drivers.isLeading;
  const reader = new NoticeReader({ stream, looks, isLeading, clock: systemClock, log });
  health.ready('notices', () => link.trouble ?? looks.trouble);
  closers.add('notice reader', async () => {
    // Ends the command that waits for notices.
    link.close();
    looks.stop();
    await reader.stop();
  });
  return reader;
}
