import type { Redis } from 'ioredis';
import { incarnationKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import { listQueues } from '../queue/registry.ts';
import { defineScript } from '../redis/script.ts';
import { RecordsUnavailable } from './volume-record.ts';

/* What the volumes under way are filled from. A claim may be gone while the driver still reads from
 * its source; only the record knows of it then. */

/** Records looked at in one script: Redis does nothing else meanwhile. */
const PAGE = 200;

/** KEYS: open records, blessing. ARGV: cursor, beginning of the records' keys, how many at a time.
 * Returns the next cursor, then the skeletons of open creations that name a source; the text may be
 * part of something else, so they are read again. Or 'no-incarnation' or 'quarantine': records may
 * be lost, and not be written again yet (rule 6). */
const page = defineScript(`
local t = redis.call('TIME')
local incarnation = redis.call('HMGET', KEYS[2], 'epoch', 'quarantineUntil')
if not incarnation[1] then return {'no-incarnation'} end
if t[1] * 1000 < tonumber(incarnation[2] or '0') then return {'quarantine'} end
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[3])
local answer = {found[1]}
for i = 1, #found[2], 2 do
  local record = redis.call('HMGET', ARGV[2] .. found[2][i], 'state', 'skel')
  local isCreation = record[1] == 'creating' or record[1] == 'suspect'
  if isCreation and record[2] and string.find(record[2], '"source":', 1, true) then answer[#answer + 1] = record[2] end
end
return answer
`);

/** UIDs of the snapshots and claims that open records fill their volumes from: of this driver, and
 * of the others of the installation, since a finalizer does not say whose source it keeps. Read in
 * pages; only what has a source is held.
 * @throws RecordsUnavailable when it can't be known: then everything counts as in use */
export async function openSources(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<ReadonlySet<string>> {
  const uids = new Set<string>();
  const queues = await answered(listQueues(redis, prefix));
  for (const each of new Set([driver, ...queues.map((queue) => queue.driver)])) {
    const keys = [openRecordsKey(prefix, each), incarnationKey(prefix, each)];
    let cursor = '0';
    do {
      // A list of texts, as the script's head says.
      const answer = await answered(
        page.run(redis, keys, [cursor, volumeRecordKey(prefix, each, ''), PAGE]),
      );
      const [next = '0', ...skeletons] = answer as readonly string[];
      // Nothing can be open of a driver that sutler has never led.
      if (next === 'no-incarnation' && each !== driver) break;
      if (next === 'no-incarnation' || next === 'quarantine')
        throw new RecordsUnavailable(
          `what Redis held of ${each} may be lost: nobody knows yet which sources are in use`,
        );
      for (const skeleton of skeletons) {
        const uid = sourceUid(skeleton);
        if (uid !== undefined) uids.add(uid);
      }
      cursor = next;
    } while (cursor !== '0');
  }
  return uids;
}

async function answered<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (cause) {
    throw new RecordsUnavailable('the sources of the open volume records can’t be read in Redis', {
      cause,
    });
  }
}

function sourceUid(skeleton: string): string | undefined {
  const { source } = JSON.parse(skeleton) as { readonly source?: { readonly uid?: unknown } };
  return typeof source?.uid === 'string' ? source.uid : undefined;
}
