import type { RedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { FlushMarker } from '../redis/flush-detector.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { type Heartbeat, startHeartbeat } from './heartbeat.ts';

/** The connection that all consumers of a process share. */
export interface WorkerConnection {
  readonly link: RedisLink;
  readonly heartbeat: Pick<Heartbeat, 'trouble' | 'hasJobs' | 'write'>;
  /** Calls the listener when Redis was emptied.
   * @returns ends that */
  onEmptied(listener: () => void): () => void;
  /** A consumer takes jobs of the queue from now on. */
  join(queue: string): void;
  /** It takes no more. */
  leave(queue: string): void;
  /** To be called when all consumers are closed. */
  close(): void;
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openWorkerConnection(options: {
  readonly redisUrl: string;
  readonly redisAccess?: RedisAccess;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly log: Logger;
}): WorkerConnection {
  const { redisUrl: url, redisAccess: access, prefix, log } = options;
  keyPrefix(prefix);
  const link = openRedis({
    url,
    ...(access === undefined ? {} : { access }),
    role: 'worker',
    name: 'sutler-worker',
    log,
  });
  const emptied = new Listeners<void>();
  const marker = new FlushMarker({ link, log, onEmptied: () => emptied.notify() });
  const onMarker = (found: string): void => marker.compare(found);
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
