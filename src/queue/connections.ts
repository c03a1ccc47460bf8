import type { RedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { compareMarkers, startFlushDetector } from '../redis/flush-detector.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { startHeartbeat } from './heartbeat.ts';

/** What all producers of a process share. */
export type ProducerConnection = ReturnType<typeof openProducerConnection>;

/** What all consumers of a process share. */
export type WorkerConnection = ReturnType<typeof openWorkerConnection>;

interface ConnectionOptions {
  readonly redisUrl: string;
  readonly redisAccess?: RedisAccess;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly log: Logger;
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openProducerConnection(options: ConnectionOptions) {
  const { prefix, log } = options;
  const link = openLink(options, 'producer');
  const emptied = new Listeners<void>();
  const onEmptied = (): void => emptied.notify();
  // One listener, however many producers there are.
  const closed = new Listeners<void>();
  link.redis.on('close', () => closed.notify());
  const flushDetector = startFlushDetector({ link, prefix, log, onEmptied });
  return {
    link,
    flushDetector,
    /** Why keys don't reach Redis now, in one line for /readyz; undefined while they do. */
    get trouble(): string | undefined {
      return link.trouble ?? link.refusal ?? flushDetector.trouble;
    },
    /** Calls the listener when Redis was emptied.
     * @returns ends that */
    onEmptied: (listener: () => void) => emptied.subscribe(listener),
    /** Calls the listener when the connection is lost.
     * @returns ends that */
    onClosed: (listener: () => void) => closed.subscribe(listener),
    /** To be called when all producers are closed. */
    close(): void {
      flushDetector.stop();
      link.close();
    },
  };
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openWorkerConnection(options: ConnectionOptions) {
  const { prefix, log } = options;
  const link = openLink(options, 'worker');
  const emptied = new Listeners<void>();
  const onMarker = compareMarkers({ link, log, onEmptied: () => emptied.notify() });
  const heartbeat = startHeartbeat(link, { prefix, onMarker, log });
  return {
    link,
    heartbeat,
    /** As that of producers. */
    onEmptied: (listener: () => void) => emptied.subscribe(listener),
    /** A consumer takes jobs of the queue from now on. */
    join: (queue: string) => heartbeat.add(queue),
    /** It takes no more. */
    leave: (queue: string) => heartbeat.remove(queue),
    /** To be called when all consumers are closed. */
    close(): void {
      heartbeat.stop();
      link.close();
    },
  };
}

function openLink(
  { redisUrl: url, redisAccess: access, prefix, log }: ConnectionOptions,
  role: 'producer' | 'worker',
): RedisLink {
  // Refuses a prefix that is not allowed.
  keyPrefix(prefix);
  const name = `sutler-${role}`;
  return openRedis({ url, ...(access === undefined ? {} : { access }), role, name, log });
}
