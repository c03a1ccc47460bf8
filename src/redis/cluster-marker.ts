import type { Logger } from '../runtime/log.ts';
import type { RedisLink } from './connection.ts';
import { clusterKey } from './key-names.ts';
import { defineScript } from './script.ts';

/** Whether this Redis, under this prefix, belongs to our cluster. Two clusters on one prefix would
 * provision and delete by each other's records. */
export interface ClusterMarker {
  /** Leave to use what Redis holds; false until known. */
  readonly isOurs: boolean;
  /** One line for /readyz with the fix. */
  readonly trouble: string | undefined;
  /** Resolves when it is ours for the first time, or when the signal aborts. */
  ours(signal: AbortSignal): Promise<void>;
  /** Calls the listener whenever `isOurs` changes. */
  onChange(listener: (isOurs: boolean) => void): void;
  stop(): void;
}

export interface ClusterMarkerOptions {
  readonly link: RedisLink;
  readonly prefix: string;
  /** What tells our cluster from others; undefined where we may not ask: then nothing is compared.
   * Rejects: asked again. */
  readonly clusterUid: () => Promise<string | undefined>;
  readonly log: Logger;
  /** Time between two looks. */
  readonly periodMs?: number;
}

const PERIOD_MS = 2_000;

/** KEYS: marker. ARGV: our UID. Marks a Redis that nobody has marked. Returns whose it is. */
const mark = defineScript(`
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
`);

/** Looks at each connection and every two seconds, so that a Redis that was emptied is marked again
 * and one that changed hands is noticed. */
export function watchClusterMarker(options: ClusterMarkerOptions): ClusterMarker {
  const { link, log } = options;
  const key = clusterKey(options.prefix);
  const stopped = new AbortController();
  const listeners: ((isOurs: boolean) => void)[] = [];
  let uid: string | undefined;
  let isComparable = true;
  let isOurs = false;
  let trouble: string | undefined = 'not compared yet with the cluster that this Redis belongs to';
  let looking: Promise<void> | undefined;
  let known: () => void = () => undefined;
  const first = new Promise<void>((resolve) => (known = resolve));

  const settle = (ours: boolean, why: string | undefined): void => {
    const changed = ours !== isOurs;
    isOurs = ours;
    trouble = why;
    if (ours) known();
    if (changed) for (const listener of listeners) listener(ours);
  };
  const look = async (): Promise<void> => {
    try {
      if (uid === undefined && isComparable) {
        uid = await options.clusterUid();
        isComparable = uid !== undefined;
        if (!isComparable)
          log.warn(
            'this process may not ask which cluster it is in, so a Redis of another cluster would not be noticed: grant get on namespace kube-system',
          );
      }
      if (uid === undefined) return settle(true, undefined);
      const owner = String(await mark.run(link.redis, [key], [uid]));
      if (stopped.signal.aborted) return;
      if (owner === uid) {
        if (trouble !== undefined && !isOurs)
          log.info({ redis: link.address }, 'this Redis belongs to our cluster');
        return settle(true, undefined);
      }
      const why =
        `Redis at ${link.address} belongs to another cluster (its kube-system has the UID ${owner}, ours has ${uid}): give this installation a --redis-prefix of ` +
        `its own; if that cluster is gone for good, delete the key ${key} from Redis`;
      if (trouble !== why)
        log.error(
          { redis: link.address, owner, uid, key },
          'this Redis belongs to another cluster: nothing is done with it',
        );
      settle(false, why);
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error);
      // What was known stays: a Redis that is away can't have changed hands unnoticed, since it is
      // looked at again before anything else.
      if (!isOurs && (trouble === undefined || uid === undefined))
        trouble = `could not ask which cluster this is: ${words}`;
      log.debug({ err: error }, 'could not compare the cluster of this Redis; looking again');
    }
  };
  const check = (): void => {
    if (link.trouble !== undefined || stopped.signal.aborted) return;
    looking ??= look().finally(() => (looking = undefined));
  };
  const timer = setInterval(check, options.periodMs ?? PERIOD_MS);
  link.onReady(check);
  check();
  return {
    get isOurs() {
      return isOurs;
    },
    get trouble() {
      return trouble;
    },
    ours: (signal) =>
      Promise.race([
        first,
        new Promise<void>((resolve) => {
          if (signal.aborted) resolve();
          else signal.addEventListener('abort', () => resolve(), { once: true });
        }),
      ]),
    onChange: (listener) => void listeners.push(listener),
    stop() {
      stopped.abort('stopped');
      clearInterval(timer);
    },
  };
}
