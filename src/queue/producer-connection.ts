import type { RedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { type FlushDetector, startFlushDetector } from '../redis/flush-detector.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';

/** The connection that all producers of a process share. */
export interface ProducerConnection {
  readonly link: RedisLink;
  readonly flushDetector: Pick<FlushDetector, 'check'>;
  /** Why hints don't reach Redis now, in one line for /readyz; undefined while they do. */
  readonly trouble: string | undefined;
  /** Calls the listener when Redis was emptied.
   * @returns ends that */
  onEmptied(listener: () => void): () => void;
  /** To be called when all producers are closed. */
  close(): void;
}

/** Begins to connect.
 * @throws UsageError for an unreadable Redis URL or prefix */
export function openProducerConnection(options: {
  readonly redisUrl: string;
  readonly redisAccess?: RedisAccess;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly log: Logger;
}): ProducerConnection {
  const { redisUrl: url, redisAccess: access, prefix, log } = options;
  keyPrefix(prefix);
  const link = openRedis({
    url,
    ...(access === undefined ? {} : { access }),
    role: 'producer',
    name: 'sutler-producer',
    log,
  });
  const emptied = new Listeners<void>();
  const onEmptied = (): void => emptied.notify();
  const flushDetector = startFlushDetector({ link, prefix, log, onEmptied });
  return {
    link,
    flushDetector,
    get trouble() {
      return link.trouble ?? link.refusal ?? flushDetector.trouble;
    },
    onEmptied: (listener) => emptied.subscribe(listener),
    close() {
      flushDetector.stop();
      link.close();
    },
  };
}
