import { systemClock } from '../runtime/clock.ts';
import { openRedis } from '../redis/connection.ts';
import type { Connections } from '../connections/open-connections.ts';
import type { Context } from './driver-deps.ts';
import { HandleScanner } from './notices/handle-scanner.ts';
import { NoticeReader } from './notices/notice-reader.ts';
import { type NoticeStream, redisNoticeStream } from '../webhooks/notices.ts';
import { WebhookSource } from './notices/webhook-source.ts';
import { HintedWatch } from './notices/hinted-watch.ts';
import { type Look, Looks } from './notices/looks.ts';
import { PacedLists } from './notices/paced-lists.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { Informers } from './objects/informers.ts';

/** Where this process learns of claims, classes and volumes, as --event-source says. */
export interface EventSource {
  readonly source: ObjectSource;
  /** Reads hints; absent with `watch`. */
  readonly reader?: NoticeReader;
  /** Absent unless hints come beside a watch. */
  readonly hintedWatch?: HintedWatch;
  /** Looks for shared handles when it is asked; absent where all volumes are watched. */
  readonly scanner?: HandleScanner;
}

type SharedContext = Omit<Context, 'stopping'>;

/** Begins to learn of claims, classes and volumes, for all drivers. */
export function openEventSource(context: SharedContext, connections: Connections): EventSource {
  const eventSource = open(context, connections);
  const { source } = eventSource;
  const { closers, health } = context;
  closers.add('objects', () => source.stop());
  health.ready('kubernetes', () => source.trouble);
  return eventSource;
}

function open(context: SharedContext, connections: Connections): EventSource {
  const { flags, log, metrics } = context;
  if (flags.eventSource !== 'watch' && flags.webhookAddress === '' && flags.admissionAddress === '')
    log.warn(NO_RECEIVER);
  if (flags.eventSource === 'webhook') return openWebhookSource(context, connections);
  const source = new Informers({ client: connections.kube, log, metrics });
  if (flags.eventSource === 'watch') return { source };
  const hintedWatch = new HintedWatch(log);
  const reader = openReader(context, connections, {
    isLeading: () => hintedWatch.isLeading,
    onLook: (look) => hintedWatch.looked(look),
  });
  return { source, reader, hintedWatch };
}

const NO_RECEIVER =
  'this ingest receives no webhooks; unless another one does, changes of claims and volumes are ' +
  'found by their watch, if there is one, and by the resync (set --webhook-address or ' +
  '--admission-address)';

/** No watch of claims and volumes, and no cache of them. */
function openWebhookSource(context: SharedContext, connections: Connections): EventSource {
  const { closers, log, metrics } = context;
  const client = connections.kube;
  const lists = new PacedLists({ client, clock: systemClock, log });
  const scanner = new HandleScanner({ lists, clock: systemClock, log });
  const source: WebhookSource = new WebhookSource({
    client,
    lists,
    waitUntilReading: (signal) => reader.waitUntilReading(signal),
    onVolume: (volume) => scanner.observe(volume),
    clock: systemClock,
    log,
    metrics,
  });
  const reader = openReader(context, connections, {
    isLeading: () => source.isLeading,
    onLook: (look) => source.looked(look),
  });
  closers.add('scan for shared handles', () => scanner.stop());
  return { source, reader, scanner };
}

function openReader(
  { flags, closers, health, log, metrics }: SharedContext,
  { kube: client, redisAccess: access }: Connections,
  o: { readonly isLeading: () => boolean; readonly onLook: (look: Look) => void },
): NoticeReader {
  const { redisUrl: url, redisPrefix } = flags;
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-hints', log });
  const looks = new Looks({ client, onLook: o.onLook, clock: systemClock, log, metrics });
  const hints = redisNoticeStream(link.redis, redisPrefix);
  const stream: Pick<NoticeStream, 'markEnd' | 'readNotices'> = {
    markEnd: () => link.observe('hints', hints.markEnd()),
    readNotices: (after, waitMs) => link.observe('hints', hints.readNotices(after, waitMs)),
  };
  const { isLeading } = o;
  const reader = new NoticeReader({ stream, looks, isLeading, clock: systemClock, log });
  health.ready('hints', () => link.trouble ?? link.refusal ?? looks.trouble);
  closers.add('hint reader', async () => {
    // Ends the command that waits for hints.
    link.close();
    looks.stop();
    await reader.stop();
  });
  return reader;
}
