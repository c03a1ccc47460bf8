import { randomUUID } from 'node:crypto';

import { performance } from 'node:perf_hooks';

import type { Logger } from '../runtime/log.ts';
import type { RedisLink } from './connection.ts';
import { flushMarkerKey } from './key-names.ts';

/** Notices that Redis was emptied. A flush breaks no connection and changes no run id, so a random
 * key is kept and compared. */
export interface FlushDetector {
  /** The value last seen; undefined before the first look. */
  readonly marker: string | undefined;
  /** One line while Redis gives no answer, though the connection stands. */
  readonly trouble: string | undefined;
  /** Looks now; never rejects. */
  check(): Promise<void>;
  stop(): void;
}

export interface FlushDetectorOptions {
  readonly link: RedisLink;
  readonly prefix: string;
  readonly log: Logger;
  /** Time between two looks. */
  readonly periodMs?: number;
  /** Redis holds other data than at the last look. */
  readonly onEmptied: () => void;
}

/** Redis answers within milliseconds; past this it is frozen or cut off. */
const SILENT_MS = 2_500;

/** Looks at once when Redis is usable, then every second. */
export function startFlushDetector(options: FlushDetectorOptions): FlushDetector {
  const { link, log } = options;
  const key = flushMarkerKey(options.prefix);
  let epoch: string | undefined;
  let looking: Promise<void> | undefined;
  let sinceMs = 0;
  let isSilent = false;

  const look = async (): Promise<void> => {
    sinceMs = performance.now();
    try {
      let found = await link.redis.get(key);
      if (found === null) {
        await link.redis.set(key, randomUUID(), 'NX');
        found = await link.redis.get(key);
      }
      isSilent = false;
      if (found === null || found === epoch) return;
      const before = epoch;
      epoch = found;
      if (before === undefined) return;
      log.warn(
        { redis: link.address },
        'Redis was emptied: what it held is written again from the cluster',
      );
      options.onEmptied();
    } catch (error) {
      isSilent ||= performance.now() - sinceMs > SILENT_MS;
      log.debug({ err: error }, 'could not compare the epoch; looking again soon');
    }
  };
  const check = (): Promise<void> => {
    if (link.trouble !== undefined) return Promise.resolve();
    looking ??= look().finally(() => (looking = undefined));
    return looking;
  };
  const timer = setInterval(() => void check(), options.periodMs ?? 1000);
  link.onReady(() => void check());
  return {
    get marker() {
      return epoch;
    },
    get trouble() {
      const isWaiting = looking !== undefined && performance.now() - sinceMs > SILENT_MS;
      return isSilent || isWaiting
        ? `Redis at ${link.address} does not answer; waiting for it`
        : undefined;
    },
    check,
    stop: () => clearInterval(timer),
  };
}
