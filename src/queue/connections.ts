import type { RedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { compareMarkers, type FlushDetector, startFlushDetector } from '../redis/flush-detector.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { type Heartbeat, startHeartbeat } from './heartbeat.ts';

/** A connection that all producers of a process share, or all its consumers. */
interface QueueConnection {
  readonly link: RedisLink;
  /** Calls the listener when Redis was emptied.
   * @returns ends that */
  onEmptied(listener: () => void): () => void;
  /** To be called when all who use it are closed. */
  close(): void;
}

export interface ProducerConnection extends QueueConnection {
  readonly flushDetector: Pick<FlushDetector, 'check'>;
  /** Why keys don't reach Redis now, in one line for /readyz; undefined while they do. */
  readonly trouble: string | undefined;
  /** Calls the listener when the connection is lost.
   * @returns ends that */
  onClosed(listener: () => void): () => void;
}

export interface WorkerConnection extends QueueConnection {
  readonly heartbeat: Pick<Heartbeat, 'trouble' | 'hasJobs' | 'write'>;
  /** A consumer takes jobs of the queue from now on. */
  join(queue: string): void;
  /** It takes no more. */
  leave(queue: string): void;
}

interface ConnectionOptions {
  readonly redisUrl: string;
  readonly redisAccess?: RedisAccess;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly log: Logger;
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openProducerConnection(options: ConnectionOptions): ProducerConnection {
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
    get trouble() {
      return link.trouble ?? link.refusal ?? flushDetector.trouble;
    },
    onEmptied: (listener) => emptied.subscribe(listener),
    onClosed: (listener) => closed.subscribe(listener),
    close() {
      flushDetector.stop();
      link.close();
    },
  };
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openWorkerConnection(options: ConnectionOptions): WorkerConnection {
  const { prefix, log } = options;
  const link = openLink(options, 'worker');
  const emptied = new Listeners<void>();
  const onMarker = compareMarkers({ link, log, onEmptied: () => emptied.notify() });
  const heartbeat = startHeartbeat(link, { prefix, onMarker, log });
  return {
    link,
    heartbeat,
    onEmptied: (listener) => emptied.subscribe(listener),
    join: (queue) => heartbeat.add(queue),
    leave: (queue) => heartbeat.remove(queue),
    close() {
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
