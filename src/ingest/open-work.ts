import { instanceName } from '../connections/open-connections.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import { doubtMsOf } from '../election/flags.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import { Journal } from '../journal/journal.ts';
import type { Claim } from '../kube/objects.ts';
import { readClaim } from '../kube/read-claim.ts';
import type { KeyToQueue } from '../queue/contract.ts';
import { WorkQueue } from '../queue/work-queue.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import { isTerminatingCloneSource } from '../volumes/data-source.ts';
import { classNameOf, selectedNodeOf } from '../volumes/eligibility.ts';
import { type ClaimToPlan, Dispatcher } from './dispatcher.ts';
import type { Context, DriverLease } from './driver-deps.ts';
import { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { EventHandler } from './objects/event-handler.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { transformWatchedClaim } from './objects/transforms.ts';

/** What gives the claims and volumes of a driver their jobs. */
export interface Work {
  /** Takes requests while this process leads. */
  readonly queue: LeaderOnlyQueue;
  readonly dispatcher: Dispatcher;
  readonly journal: Journal;
  readonly work: WorkQueue;
  readonly workLink: RedisLink;
  readonly place: RedisPlace;
  /** Who judges whether a claim or volume needs a job once more. */
  setHandler(handler: Pick<EventHandler, 'enqueueClaim' | 'enqueueVolumeKey'>): void;
  /** Called where another process leads, or Redis has lost its data. */
  setOnOutdated(listener: () => void): void;
}

/** Opens it for one driver.
 * @param o.keepMs  the longest time between two leaders */
export function openWork(
  context: Context,
  connections: DriverConnections,
  o: {
    readonly driver: DriverInfo;
    readonly lease: DriverLease;
    readonly source: ObjectSource;
    readonly ownLeader: OwnLeader | undefined;
    readonly keepMs: number;
  },
): Work {
  const { flags, closers, health, log, metrics } = context;
  const { kube: client } = connections;
  const { redisPrefix: prefix } = flags;
  const driver = o.driver.name;
  let handler: Handler | undefined;
  let onOutdated = (): void => undefined;
  const workLink = openLink(context, connections);
  const place = { redis: workLink.redis, prefix, driver };
  const dirty = (): number => dispatcher.pending;
  const work = new WorkQueue({ link: workLink, prefix, driver, dirty, log, metrics });
  const journal = new Journal({
    client,
    ...o.lease,
    lease: o.lease.name,
    driver,
    node: o.ownLeader?.node,
    holder: instanceName(context),
    onGone: (uids) => dispatcher.entriesGone(uids),
    log,
  });
  const claimToPlan = claimPlanner(client, o.ownLeader?.node, o.source);
  const dispatcher: Dispatcher = new Dispatcher({
    queue: work,
    journal,
    claimToPlan,
    doubtMs: doubtMsOf(flags),
    trouble: () => workLink.trouble,
    onMayNeedAgain: (key) => void lookAgain(key, { client, handler: () => handler, log }),
    onOutdated: () => onOutdated(),
    log,
  });
  closers.add('work queue', async () => {
    handler = undefined;
    await dispatcher.close();
    await work.close();
    workLink.close();
  });
  health.note('journal', () => journal.trouble);
  health.ready('work', () => workLink.trouble ?? dispatcher.trouble);
  return {
    queue: new LeaderOnlyQueue(dispatcher, o.keepMs),
    dispatcher,
    journal,
    work,
    workLink,
    place,
    setHandler: (next) => (handler = next),
    setOnOutdated: (listener) => (onOutdated = listener),
  };
}

const READ_AGAIN_MS = 2_000;

type Handler = Parameters<Work['setHandler']>[0];

/** Judges anew whether a claim or volume needs a job. Never rejects. */
async function lookAgain(
  key: KeyToQueue,
  o: {
    readonly client: DriverConnections['kube'];
    readonly handler: () => Handler | undefined;
    readonly log: Logger;
  },
): Promise<void> {
  if (key.kind === 'volume') return o.handler()?.enqueueVolumeKey(key);
  try {
    const claim = await readClaim(o.client, key);
    if (claim !== undefined)
      o.handler()?.enqueueClaim(transformWatchedClaim(claim), 'ensureQueued');
  } catch (error) {
    o.log.debug({ err: error }, 'a claim could not be read again; trying again');
    if (o.handler() !== undefined) setTimeout(() => void lookAgain(key, o), READ_AGAIN_MS).unref();
  }
}

/** @returns finds the claim of a key, and its class, if it still needs a job: its volume may have
 * been written while the request waited, as in a burst. In a process that serves one node, a copy
 * of the claim without a node proves nothing: that of a resync may be older than the choice, and
 * take the place of the event's.
 * @param ownNode  the only node that this process serves; undefined for all */
export function claimPlanner(
  kube: Pick<DriverConnections['kube'], 'get'>,
  ownNode: string | undefined,
  source: Pick<ObjectSource, 'classOf' | 'hasVolume'>,
) {
  const lacksNode = (claim: Claim): boolean =>
    ownNode !== undefined && selectedNodeOf(claim) === '';
  return async (key: KeyToQueue): Promise<ClaimToPlan | undefined> => {
    const copy = claimIn(key);
    const claim = copy === undefined || lacksNode(copy) ? await readClaim(kube, key) : copy;
    if (claim === undefined) return undefined;
    if (source.hasVolume(key.uid) && !isTerminatingCloneSource(claim)) return undefined;
    return { claim, cls: source.classOf(classNameOf(claim)), needsNode: lacksNode(claim) };
  };
}

function openLink({ flags, log }: Context, { redisAccess: access }: DriverConnections): RedisLink {
  const { redisUrl: url } = flags;
  return openRedis({ url, access, role: 'producer', name: 'sutler-work', log });
}

/** The claim as the watch has shown it. */
function claimIn({ uid, claim }: KeyToQueue): Claim | undefined {
  const value = claim === undefined ? undefined : parseJson(claim);
  return isFields(value) && isFields(value['metadata']) && value['metadata']['uid'] === uid
    ? (value as unknown as Claim)
    : undefined;
}
