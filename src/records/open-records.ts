import type { Redis } from 'ioredis';
import { jobData, type JobKey, parseJob } from '../queue/contract.ts';
import { listQueues } from '../queue/queues.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import { parseJson } from '../runtime/json.ts';
import { askRedis, RecordsUnavailable } from './ask-redis.ts';
import { dataEpochKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import { readRecordClock, RECORD_NOW } from './record-clock.ts';
import { handleIn, sourceUidIn } from './stored-request.ts';

/** Entries that are read at a time: Redis does nothing else meanwhile. */
const JOBS_AT_ONCE = 1000;

/** The job key of each open record of a driver, by record id. A resync enqueues them, because claim
 * and PV of an open record may be gone. */
export async function openJobs(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<ReadonlyMap<string, JobKey>> {
  const jobs = new Map<string, JobKey>();
  const pages = redis.hscanStream(openRecordsKey(prefix, driver), { count: JOBS_AT_ONCE });
  for await (const page of pages as AsyncIterable<readonly string[]>)
    for (let i = 0; i < page.length; i += 2) {
      const key = decodeJob(page[i + 1] ?? '');
      if (key !== undefined) jobs.set(page[i] ?? '', key);
    }
  return jobs;
}

/** The text by which a record names its job. */
export function encodeJob(key: JobKey): string {
  return JSON.stringify(jobData(key));
}

function decodeJob(text: string): JobKey | undefined {
  const parsed = parseJob(parseJson(text));
  return parsed.ok ? parsed.key : undefined;
}

/** An open record for audits and operators, without its request, which contains class
 * parameters. */
export interface OpenRecord {
  readonly id: string;
  /** "namespace/claim", or the volume's name. */
  readonly object: string;
  readonly state: string;
  readonly ambiguous: boolean;
  readonly attempts: number;
  /** Unix ms, by Redis' clock. */
  readonly sinceMs: number;
  /** gRPC code of the last attempt, '' when it had none. */
  readonly lastCode: string;
  /** The volume's handle, where the driver has answered with it. */
  readonly handle: string | undefined;
  /** The gateway of the last attempt; '' where none was named. */
  readonly endpoint: string;
  /** The job that finishes it. */
  readonly job: JobKey;
  /** How long a run owns it at most; 0: none does. */
  readonly ownedForMs: number;
  /** The latest time at which a call of unknown end may still be under way, Unix ms by Redis'
   * clock; 0: there is none. The settle time begins then. */
  readonly callEndMs: number;
}

/** All open records of a driver, suspects first, then the oldest. */
export async function openRecords(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<readonly OpenRecord[]> {
  const clock = await readRecordClock(redis, dataEpochKey(prefix, driver));
  const records: OpenRecord[] = [];
  for (const [id, job] of await openJobs(redis, prefix, driver)) {
    const record = await readRecord(redis, { prefix, driver, id }, job, clock);
    if (record !== undefined) records.push(record);
  }
  const rank = (record: OpenRecord): number => (record.state === 'suspect' ? 0 : 1);
  return records.sort((a, b) => rank(a) - rank(b) || a.sinceMs - b.sinceMs);
}

/** The open record of this id; undefined if there is none. */
export async function openRecord(
  { redis, prefix, driver }: RedisPlace,
  id: string,
): Promise<OpenRecord | undefined> {
  const job = decodeJob((await redis.hget(openRecordsKey(prefix, driver), id)) ?? '');
  if (job === undefined) return undefined;
  const clock = await readRecordClock(redis, dataEpochKey(prefix, driver));
  return readRecord(redis, { prefix, driver, id }, job, clock);
}

async function readRecord(
  redis: Redis,
  { prefix, driver, id }: { readonly prefix: string; readonly driver: string; readonly id: string },
  job: JobKey,
  { nowMs, redisNowMs }: { readonly nowMs: number; readonly redisNowMs: number },
): Promise<OpenRecord | undefined> {
  const key = volumeRecordKey(prefix, driver, id);
  const fields = ['state', 'owner', 'until', 'amb', 'n', 'since', 'code', 'ans', 'ep', 'call'];
  const found = await redis.hmget(key, ...fields);
  const [state, owner, until, amb, n, since, code, answer, endpoint, call] = found;
  if (state === null || state === undefined) return undefined;
  return {
    id,
    object: job.namespace === '' ? job.name : `${job.namespace}/${job.name}`,
    state,
    ambiguous: amb === '1',
    attempts: Number(n),
    sinceMs: Number(since),
    lastCode: code ?? '',
    handle: handleIn(answer ?? ''),
    endpoint: endpoint ?? '',
    job,
    ownedForMs: owner ? Math.max(0, Number(until) - nowMs) : 0,
    callEndMs: Number(call) > 0 ? Number(call) - nowMs + redisNowMs : 0,
  };
}

const RECORDS_AT_ONCE = 200;

/** Answers the PV templates of one page of open creations that seem to name a source: Lua only
 * searches the text, so the caller decodes them. Refuses while records may be lost and not be
 * rewritten yet (record rule 6). */
const pageScript = defineNamedScript({
  keys: ['openKey', 'dataEpochKey'],
  args: { cursor: 'text', recordKeyRoot: 'text' },
  answers: { 'no-data-epoch': {}, quarantine: {}, page: { cursor: 'text', pvTemplates: 'list' } },
  lua: `${RECORD_NOW}
local dataEpoch, quarantineUntil =
  unpack(redis.call('HMGET', dataEpochKey, 'epoch', 'quarantineUntil'))
if not dataEpoch then return {'no-data-epoch'} end
if now < tonumber(quarantineUntil or 0) then return {'quarantine'} end
local nextCursor, ids = unpack(redis.call('HSCAN', openKey, cursor, 'COUNT', ${RECORDS_AT_ONCE}))
local pvTemplates = {}
for i = 1, #ids, 2 do
  local state, pvTemplate = unpack(redis.call('HMGET', recordKeyRoot .. ids[i], 'state', 'skel'))
  local isCreation = state == 'creating' or state == 'suspect'
  if isCreation and pvTemplate and string.find(pvTemplate, '"source":', 1, true) then
    pvTemplates[#pvTemplates + 1] = pvTemplate
  end
end
return {'page', 'cursor', nextCursor, 'pvTemplates', pvTemplates}
`,
});

/** UIDs of the snapshots and claims that volumes are being filled from, by the open records of all
 * drivers of the installation. A finalizer does not say for which driver it was added, and a claim
 * may be gone while the driver still reads from its source.
 * @throws RecordsUnavailable when that can't be known: then every source counts as in use */
export async function openSources(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<ReadonlySet<string>> {
  const uids = new Set<string>();
  const queues = await askRedis(listQueues(redis, prefix));
  for (const each of new Set([driver, ...queues.map((queue) => queue.driver)])) {
    const keys = {
      openKey: openRecordsKey(prefix, each),
      dataEpochKey: dataEpochKey(prefix, each),
    };
    const recordKeyRoot = volumeRecordKey(prefix, each, '');
    let cursor = '0';
    do {
      const page = await askRedis(pageScript.run(redis, keys, { cursor, recordKeyRoot }));
      // No leading ingest has ever confirmed that driver's data, so it has no open record.
      if (page.kind === 'no-data-epoch' && each !== driver) break;
      if (page.kind !== 'page')
        throw new RecordsUnavailable(
          `Redis may have lost records of ${each}: it is not known which sources are in use`,
        );
      for (const uid of page.pvTemplates.flatMap((text) => sourceUidIn(text) ?? [])) uids.add(uid);
      cursor = page.cursor;
    } while (cursor !== '0');
  }
  return uids;
}
