import type { RedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { FlushMarker } from '../redis/flush-detector.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { type Heartbeat, startHeartbeat } from './heartbeat.ts';

/** The connection that all consumers of a process share. It closes with the last of them. */
export interface WorkerConnection {
  readonly link: RedisLink;
  readonly heartbeat: Pick<Heartbeat, 'trouble' | 'hasJobs' | 'write'>;
  /** Calls the listener when Redis was emptied. */
  onEmptied(listener: () => void): void;
  /** A consumer takes jobs of the queue from now on. */
  join(queue: string): void;
  /** It takes no more. */
  leave(queue: string): void;
  /** To be called when the consumer is closed. */
  consumerClosed(): void;
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openWorkerConnection(options: {
  readonly redisUrl: string;
  readonly redisAccess?: RedisAccess;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  readonly log: Logger;
}): WorkerConnection {
  const { redisUrl: url, redisAccess: access, prefix, driver, log } = options;
  keyPrefix(prefix);
  const link = openRedis({
    url,
    ...(access === undefined ? {} : { access }),
    role: 'worker',
    name: `sutler-worker:${driver}`,
    log,
  });
  let consumers = 0;
  const emptied = new Listeners<void>();
  const marker = new FlushMarker({ link, log, onEmptied: () => emptied.notify() });
  const onMarker = (found: string): void => marker.compare(found);
  const heartbeat = startHeartbeat(link, { prefix, onMarker, log });
  return {
    link,
    heartbeat,
    onEmptied: (listener) => emptied.subscribe(listener),
    join(queue) {
      consumers += 1;
      heartbeat.add(queue);
    },
    leave: (queue) => heartbeat.remove(queue),
    consumerClosed() {
      consumers -= 1;
      if (consumers > 0) return;
      heartbeat.stop();
      link.close();
    },
  };
}
