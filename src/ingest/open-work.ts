import { type DriverConnections, instanceName } from '../connections/open-connections.ts';
import { doubtMsOf } from '../election/flags.ts';
import { Journal } from '../journal/journal.ts';
import type { Claim } from '../kube/objects.ts';
import { readClaim } from '../kube/read-claim.ts';
import type { JobKey, KeyToQueue } from '../queue/contract.ts';
import { WorkQueue } from '../queue/work-queue.ts';
import { openRedis } from '../redis/connection.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { isTerminatingCloneSource } from '../volumes/data-source.ts';
import { classNameOf, selectedNodeOf } from '../volumes/eligibility.ts';
import { type ClaimToPlan, Dispatcher } from './dispatcher.ts';
import type { Context, DriverBase } from './driver-deps.ts';
import type { EventHandler } from './objects/event-handler.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { transformWatchedClaim } from './objects/transforms.ts';

/** The journal, the queue and the dispatcher of a driver. */
export type Work = ReturnType<typeof openWork>;

/** Opens them for one driver.
 * @param onMayNeedAgain  called for a claim that changed during its run
 * @param onOutdated  called when another process leads, or Redis has lost its data */
export function openWork(
  { context, connections, place: { prefix, driver }, journal: place, source }: DriverBase,
  onMayNeedAgain: (claim: JobKey) => void,
  onOutdated: () => void,
) {
  const { flags, closers, health, log, metrics } = context;
  const { kube: client, redisAccess: access } = connections;
  const link = openRedis({
    url: flags.redisUrl,
    access,
    role: 'producer',
    name: 'sutler-work',
    log,
  });
  const dirty = (): number => dispatcher.pending;
  const work = new WorkQueue({ link, prefix, driver, dirty, log, metrics });
  const journal = new Journal({
    ...place,
    client,
    holder: instanceName(context),
    onGone: (uids) => dispatcher.entriesGone(uids),
    log,
  });
  const dispatcher: Dispatcher = new Dispatcher({
    queue: work,
    journal,
    claimToPlan: claimPlanner(client, place.node, source),
    doubtMs: doubtMsOf(flags),
    trouble: () => link.trouble,
    onMayNeedAgain,
    onOutdated,
    log,
  });
  closers.add('work queue', async () => {
    await dispatcher.close();
    await work.close();
    link.close();
  });
  health.note('journal', () => journal.trouble);
  health.ready('work', () => link.trouble ?? dispatcher.trouble);
  return { dispatcher, journal, work, link, place: { redis: link.redis, prefix, driver } };
}

const READ_AGAIN_MS = 2_000;

/** Reads a claim again, and enqueues it if it still needs a job. Never rejects. */
export async function lookAgain(
  key: JobKey,
  handler: EventHandler,
  client: DriverConnections['kube'],
  { log, stopping }: Pick<Context, 'log' | 'stopping'>,
): Promise<void> {
  try {
    const claim = await readClaim(client, key);
    if (claim !== undefined) handler.enqueueClaim(transformWatchedClaim(claim), 'ensureQueued');
  } catch (error) {
    log.debug({ err: error }, 'could not read a claim again; trying again');
    const again = (): void => void lookAgain(key, handler, client, { log, stopping });
    if (!stopping.aborted) setTimeout(again, READ_AGAIN_MS).unref();
  }
}

/** @returns finds the claim of a key, and its class; undefined if its volume was written while the
 * request waited. In a process that serves one node, a copy without a node is read again, because a
 * resync's copy may be older than the scheduler's choice.
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

/** The watch's copy of the claim. */
function claimIn({ uid, claim }: KeyToQueue): Claim | undefined {
  const value = claim === undefined ? undefined : parseJson(claim);
  return isFields(value) && isFields(value['metadata']) && value['metadata']['uid'] === uid
    ? (value as unknown as Claim)
    : undefined;
}
