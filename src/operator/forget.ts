import { userInfo } from 'node:os';
import { type ListedEntry, listJournal } from '../journal/list-journal.ts';
import { keyOf } from '../kube/resources.ts';
import { readJob } from '../queue/queues.ts';
import { forgetKey } from '../queue/work-queue.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { signalWithin, systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { commandMain, type Means, Refusal, type Result } from './command.ts';
import { forget } from './flags.ts';
import { chooseDriver, journalPlace } from './installation.ts';

/** Drops one claim from the journal. */
export const main = commandMain(forget, run);

/** The leader checks every second. */
const LEADER_LIMIT_MS = 15_000;
const POLL_MS = 250;

async function run({ context, openRedis, openKube }: Means<typeof forget.flags>): Promise<Result> {
  const { flags, words, stopping } = context;
  const { redisPrefix: prefix, why } = flags;
  const [uid] = words;
  if (uid === undefined)
    throw new UsageError(
      'name the claim’s UID: sutler forget UID --why=REASON (sutler audit lists the journal)',
    );
  if (why === '') throw new UsageError('--why is missing: give the reason for dropping the entry');
  const kube = await openKube();
  const redis = await openRedis();
  const driver = await chooseDriver(redis, prefix, flags.driverName);
  const journal = await journalPlace(context, redis, driver);
  const entries = await listJournal(kube, journal);
  const entry = entries.find((each) => each.uid === uid);
  if (entry === undefined) throw noSuchEntry(driver, uid, entries);
  const place = { redis, prefix, driver };
  const job = await readJob(place, { kind: 'claim', uid });
  if (job?.isActive === true)
    throw new Refusal(`a run is at work on ${uid}: nothing was changed; try again after that run`);
  const note = JSON.stringify({ by: userInfo().username, why });
  await askLeader(place, { uid, note }, stopping, async () =>
    (await listJournal(kube, journal)).some((each) => each.uid === uid),
  );
  const claim = keyOf(entry.claim.metadata);
  const line =
    `forgot ${uid} (${claim}). If its volume exists, nothing in the cluster names it: ` +
    'run sutler audit to find it';
  return { status: 0, lines: [line], json: { driver, uid, claim } };
}

/** Asks the leader to drop the entry, and waits for that.
 * @throws Refusal if the leader does not drop it in time */
async function askLeader(
  { redis, prefix, driver }: RedisPlace,
  { uid, note }: Readonly<Record<'uid' | 'note', string>>,
  stopping: AbortSignal,
  hasEntry: () => Promise<boolean>,
): Promise<void> {
  const key = forgetKey(prefix, driver);
  await redis.hset(key, uid, note);
  const limit = signalWithin(stopping, LEADER_LIMIT_MS);
  while (await hasEntry()) {
    if (limit.aborted) {
      await redis.hdel(key, uid);
      throw new Refusal(
        `no ingest has dropped ${uid} within ${LEADER_LIMIT_MS / 1_000} s: nothing was changed; ` +
          'find out with sutler status which ingest leads, and try again',
      );
    }
    await systemClock.sleep(POLL_MS, limit);
  }
}

function noSuchEntry(driver: string, word: string, entries: readonly ListedEntry[]): Refusal {
  // The operator may have named the claim.
  const ofClaim = entries.find(({ claim }) => keyOf(claim.metadata) === word)?.uid;
  const guess = ofClaim === undefined ? '' : `: the UID of that claim is ${ofClaim}`;
  return new Refusal(
    `the journal of driver ${driver} has no entry ${word} ` +
      `(it has ${entries.length}; sutler audit lists them)${guess}`,
  );
}
