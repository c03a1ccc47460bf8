import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Logger } from '../runtime/log.ts';
import { everyPeriod } from '../runtime/clock.ts';
import type { RedisLink } from './connection.ts';
import { keyPrefix } from './key-prefix.ts';

const PERIOD_MS = 1_000;
/** Redis answers within milliseconds; after this time it counts as frozen or cut off. */
const SILENT_MS = 2_500;

/** Key of a random text that lives as long as Redis' data. */
export function markerKey(prefix: string): string {
  return `${keyPrefix(prefix)}:marker`;
}

interface FlushOptions {
  readonly link: RedisLink;
  readonly log: Logger;
  /** Called when Redis holds other data than at the last check. */
  readonly onEmptied: () => void;
}

/** Compares a random key that Redis keeps with what it was before: a flush breaks no connection and
 * changes no run id.
 * @returns to be called with the marker that Redis has now */
export function compareMarkers({ link, log, onEmptied }: FlushOptions): (found: string) => void {
  let last: string | undefined;
  return (found) => {
    const before = last;
    last = found;
    if (before === undefined || before === found) return;
    log.warn(
      { redis: link.address },
      'Redis was emptied: what it held is written again from the cluster',
    );
    onEmptied();
  };
}

/** Notices that Redis was emptied. Checks when Redis becomes usable, and every second. */
export function startFlushDetector(options: FlushOptions & { readonly prefix: string }) {
  const { link, log } = options;
  const key = markerKey(options.prefix);
  const compareMarker = compareMarkers(options);
  let checking: Promise<void> | undefined;
  let startedMs = 0;
  let isSilent = false;

  const readMarker = async (): Promise<string | null> => {
    const found = await link.redis.get(key);
    if (found !== null) return found;
    await link.redis.set(key, randomUUID(), 'NX');
    return link.redis.get(key);
  };
  const compare = async (): Promise<void> => {
    startedMs = performance.now();
    try {
      const found = await readMarker();
      isSilent = false;
      if (found !== null) compareMarker(found);
    } catch (error) {
      isSilent ||= performance.now() - startedMs > SILENT_MS;
      log.debug({ err: error }, 'could not check whether Redis was emptied; trying again soon');
    }
  };
  const check = async (): Promise<void> => {
    if (link.trouble !== undefined) return;
    await (checking ??= compare().finally(() => (checking = undefined)));
  };
  const endTicks = everyPeriod(PERIOD_MS, () => void check());
  link.onReady(() => void check());
  return {
    /** One line while Redis gives no answer, although the connection exists. */
    get trouble(): string | undefined {
      const isWaiting = checking !== undefined && performance.now() - startedMs > SILENT_MS;
      return isSilent || isWaiting
        ? `Redis at ${link.address} does not answer; waiting for it`
        : undefined;
    },
    /** Compares now; never rejects. */
    check,
    stop: endTicks,
  };
}
