import type { Connections } from '../connections/open-connections.ts';
import { openRedis } from '../redis/connection.ts';
import { systemClock } from '../runtime/clock.ts';
import { Listeners } from '../runtime/listeners.ts';
import { NoticeStream } from '../webhooks/notices.ts';
import type { Context } from './driver-deps.ts';
import { NoticeReader } from './notices/notice-reader.ts';
import { WebhookSource } from './notices/webhook-source.ts';
import { Informers } from './objects/informers.ts';
import { type Look, type ObjectSource, ServedDrivers } from './objects/object-source.ts';

/** Where this process learns of claims, classes and volumes, as --event-source says. */
export interface EventSource {
  readonly source: ObjectSource;
  /** Absent with `webhook`. */
  readonly informers: Informers | undefined;
  /** Notified when it changed which PVs share a handle, where all PVs are watched. */
  readonly sharing: Listeners<void>;
  /** Reads change notices; absent with `watch`. */
  readonly reader?: NoticeReader;
}

type SharedContext = Omit<Context, 'stopping'>;

/** Begins to learn of claims, classes and volumes, for all drivers. */
export function openEventSource(context: SharedContext, connections: Connections): EventSource {
  const { flags, closers, health, log, metrics } = context;
  const { eventSource, webhookAddress, admissionAddress } = flags;
  if (eventSource !== 'watch' && webhookAddress === '' && admissionAddress === '')
    log.warn(NO_RECEIVER);
  const sharing = new Listeners<void>();
  const drivers = new ServedDrivers();
  const base = { client: connections.kube, drivers, log, metrics };
  const informers =
    eventSource === 'webhook'
      ? undefined
      : new Informers({ ...base, onSharing: () => sharing.notify() });
  const source = informers ?? new WebhookSource(base);
  closers.add('objects', () => source.stop());
  health.ready('kubernetes', () => source.trouble);
  if (eventSource === 'watch') return { source, informers, sharing };
  const reader = openReader(context, connections, drivers, (look) => source.looked(look));
  return { source, informers, sharing, reader };
}

const NO_RECEIVER =
  'this ingest receives no webhooks; unless another one does, changes of claims and volumes are ' +
  'found by their watch, if there is one, and by the resync (set --webhook-address or ' +
  '--admission-address)';

function openReader(
  { flags, closers, health, log, metrics }: SharedContext,
  { kube: client, redisAccess: access }: Connections,
  drivers: ServedDrivers,
  onLook: (look: Look) => void,
): NoticeReader {
  const { redisUrl: url, redisPrefix } = flags;
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-notices', log });
  const reader = new NoticeReader({
    stream: new NoticeStream(link, redisPrefix),
    client,
    isLeading: () => drivers.isLeading,
    onLook,
    clock: systemClock,
    log,
    metrics,
  });
  health.ready('notices', () => link.trouble ?? reader.trouble);
  closers.add('notice reader', async () => {
    // Ends the command that waits for notices.
    link.close();
    await reader.stop();
  });
  return reader;
}
