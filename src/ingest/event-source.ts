import type { Connections } from '../connections/open-connections.ts';
import { openRedis } from '../redis/connection.ts';
import { systemClock } from '../runtime/clock.ts';
import { NoticeStream } from '../webhooks/notices.ts';
import type { Context } from './driver-deps.ts';
import { NoticeReader } from './notices/notice-reader.ts';
import { WebhookSource } from './notices/webhook-source.ts';
import { Informers } from './objects/informers.ts';
import type { ObjectSource } from './objects/object-source.ts';

type SharedContext = Omit<Context, 'stopping'>;

/** Opens the source of claims, classes and volumes that --event-source chooses, for all drivers. */
export function openEventSource(context: SharedContext, connections: Connections): ObjectSource {
  const { flags, closers, health, log, metrics } = context;
  const { eventSource, webhookAddress, admissionAddress } = flags;
  if (eventSource !== 'watch' && webhookAddress === '' && admissionAddress === '')
    log.warn(NO_RECEIVER);
  const options = { client: connections.kube, log, metrics };
  const source = eventSource === 'webhook' ? new WebhookSource(options) : new Informers(options);
  closers.add('objects', () => source.stop());
  health.ready('kubernetes', () => source.trouble);
  if (eventSource !== 'watch') openReader(context, connections, source);
  return source;
}

const NO_RECEIVER =
  'this ingest receives no webhooks: set --webhook-address or --admission-address, unless another ' +
  'ingest receives them. Without webhooks ingest finds changes of claims and volumes only by the ' +
  'resync, and by the watch with --event-source=both';

function openReader(
  { flags, closers, health, log, metrics }: SharedContext,
  { kube: client, redisAccess: access }: Connections,
  source: ObjectSource,
): void {
  const { redisUrl: url, redisPrefix } = flags;
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-notices', log });
  const reader = new NoticeReader({
    stream: new NoticeStream(link, redisPrefix),
    client,
    source,
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
}
