import type { RedisAccess } from '../redis/access.ts';
import { openRedis } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { startHeartbeat } from './heartbeat.ts';

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
export function openWorkerConnection(options: ConnectionOptions) {
  const { redisUrl: url, redisAccess: access, prefix, log } = options;
  // Refuses a prefix that is not allowed.
  keyPrefix(prefix);
  const more = access === undefined ? {} : { access };
  const link = openRedis({ url, ...more, role: 'worker', name: 'sutler-worker', log });
  const emptied = new Listeners<void>();
  let marker: string | undefined;
  // A flush breaks no connection.
  const onMarker = (found: string): void => {
    const isEmptied = marker !== undefined && marker !== found;
    marker = found;
    if (isEmptied) emptied.notify();
  };
  const heartbeat = startHeartbeat(link, { prefix, onMarker, log });
  return {
    link,
    heartbeat,
    /** Calls the listener when Redis was emptied.
     * @returns ends that */
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
