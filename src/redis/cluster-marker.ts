import { unlessAborted } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { RedisLink } from './connection.ts';
import { keyPrefix } from './key-prefix.ts';
import { defineNamedScript } from './named-script.ts';

export interface ClusterMarkerOptions {
  readonly link: RedisLink;
  readonly prefix: string;
  /** The UID that identifies our cluster; undefined where this process may not read it: then
   * nothing is compared. A rejection is tried again. */
  readonly clusterUid: () => Promise<string | undefined>;
  readonly log: Logger;
  /** Time between two checks. */
  readonly periodMs?: number;
}

/** Key of the UID of the cluster that this installation belongs to. */
export function clusterKey(prefix: string): string {
  return `${keyPrefix(prefix)}:cluster`;
}

const PERIOD_MS = 2_000;
const NOT_COMPARABLE =
  'this process may not read which cluster it is in, so a Redis of another cluster would not be ' +
  'noticed: grant get on namespace kube-system';

/** Sets the marker where there is none, and answers its value. */
const markScript = defineNamedScript({
  keys: ['marker'],
  args: { uid: 'text' },
  answers: { marked: { owner: 'text' } },
  lua: `
redis.call('SET', marker, uid, 'NX')
return {'marked', 'owner', redis.call('GET', marker)}
`,
});

export type ClusterMarker = ReturnType<typeof watchClusterMarker>;

/** For a Redis that no other process can reach. */
export const ALWAYS_OURS: ClusterMarker = {
  isOurs: true,
  trouble: undefined,
  waitUntilOurs: () => Promise.resolve(),
  onChange: () => () => undefined,
  stop: () => undefined,
};

/** Checks whether this Redis, under this prefix, belongs to our cluster: of two clusters on one
 * prefix, each would act on the other's volume records. Checks at each connection and every two
 * seconds, so a Redis that was emptied is marked again, and one that went to another cluster is
 * noticed. Also finds a Redis that refuses writes. */
export function watchClusterMarker(options: ClusterMarkerOptions) {
  const { link, log } = options;
  const key = clusterKey(options.prefix);
  const changes = new Listeners<boolean>();
  let uid: string | undefined;
  let isComparable = true;
  let isOurs = false;
  let trouble: string | undefined = 'not compared yet with the cluster that this Redis belongs to';
  let resolveOurs: () => void = () => undefined;
  const firstOurs = new Promise<void>((resolve) => (resolveOurs = resolve));

  const setOurs = (ours: boolean, reason?: string): void => {
    const hasChanged = ours !== isOurs;
    isOurs = ours;
    trouble = reason;
    if (ours) resolveOurs();
    if (hasChanged) changes.notify(ours);
  };
  const readUid = async (): Promise<void> => {
    if (uid !== undefined || !isComparable) return;
    uid = await options.clusterUid();
    isComparable = uid !== undefined;
    if (!isComparable) log.warn(NOT_COMPARABLE);
  };
  const applyOwner = (owner: string, ownUid: string): void => {
    const redis = link.address;
    if (owner === ownUid) {
      if (trouble !== undefined && !isOurs)
        log.info({ redis }, 'this Redis belongs to our cluster');
      return setOurs(true);
    }
    const reason =
      `Redis at ${redis} belongs to another cluster (its kube-system has the UID ${owner}, ` +
      `ours has ${ownUid}): give this installation a --redis-prefix of its own; ` +
      `if that cluster is gone for good, delete the key ${key} from Redis`;
    if (trouble !== reason)
      log.error(
        { redis, owner, uid: ownUid, key },
        'this Redis belongs to another cluster: nothing is done with it',
      );
    setOurs(false, reason);
  };
  const compare = async (signal: AbortSignal): Promise<void> => {
    if (link.trouble !== undefined) return;
    await readUid();
    if (uid === undefined) return setOurs(true);
    const marked = markScript.run(link.redis, { marker: key }, { uid });
    const { owner } = await link.observe('cluster marker', marked);
    if (!signal.aborted) applyOwner(owner, uid);
  };
  const loop = new PollLoop({
    step: compare,
    // `isOurs` stays as it was: a Redis that is away is compared again before it is used again.
    onError: (error) => {
      if (!isOurs && (trouble === undefined || uid === undefined))
        trouble = `could not read which cluster this is: ${messageOf(error)}`;
      log.debug({ err: error }, 'could not compare the cluster of this Redis; trying again');
    },
    periodMs: options.periodMs ?? PERIOD_MS,
    isAligned: true,
  });
  link.onReady(() => loop.runNow());
  return {
    /** Whether what Redis holds may be used; false until known. */
    get isOurs(): boolean {
      return isOurs;
    },
    /** One line for /readyz with the fix. */
    get trouble(): string | undefined {
      return trouble;
    },
    /** Resolves when Redis is ours for the first time, or when the signal aborts. */
    waitUntilOurs: (signal: AbortSignal): Promise<void> => unlessAborted(firstOurs, signal),
    /** Calls the listener whenever `isOurs` changes.
     * @returns ends that */
    onChange: (listener: (isOurs: boolean) => void): (() => void) => changes.subscribe(listener),
    stop: () => void loop.stop(),
  };
}
