import type { Redis } from 'ioredis';
import { listQueues } from '../queue/registry.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import { incarnationKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import { RECORD_NOW } from './record-clock.ts';
import { sourceUidIn } from './stored-request.ts';
import { askRedis, RecordsUnavailable } from './ask-redis.ts';

/** Records that one script reads: Redis does nothing else meanwhile. */
const PAGE = 200;

/** Answers the skeletons of one page of open creations that seem to name a source: Lua only
 * searches the text, so the caller decodes them. Refuses while records may be lost and not be
 * rewritten yet (record rule 6). */
const pageScript = defineNamedScript({
  keys: ['openKey', 'incarnationKey'],
  args: { cursor: 'text', recordKeyRoot: 'text' },
  answers: { 'no-incarnation': {}, quarantine: {}, page: { cursor: 'text', skeletons: 'list' } },
  lua: `${RECORD_NOW}
local incarnation, quarantineUntil =
  unpack(redis.call('HMGET', incarnationKey, 'epoch', 'quarantineUntil'))
if not incarnation then return {'no-incarnation'} end
if now < tonumber(quarantineUntil or 0) then return {'quarantine'} end
local nextCursor, ids = unpack(redis.call('HSCAN', openKey, cursor, 'COUNT', ${PAGE}))
local skeletons = {}
for i = 1, #ids, 2 do
  local state, skeleton = unpack(redis.call('HMGET', recordKeyRoot .. ids[i], 'state', 'skel'))
  local isCreation = state == 'creating' or state == 'suspect'
  if isCreation and skeleton and string.find(skeleton, '"source":', 1, true) then
    skeletons[#skeletons + 1] = skeleton
  end
end
return {'page', 'cursor', nextCursor, 'skeletons', skeletons}
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
      incarnationKey: incarnationKey(prefix, each),
    };
    const recordKeyRoot = volumeRecordKey(prefix, each, '');
    let cursor = '0';
    do {
      const page = await askRedis(pageScript.run(redis, keys, { cursor, recordKeyRoot }));
      // No leading ingest has ever confirmed that driver's data, so it has no open record.
      if (page.kind === 'no-incarnation' && each !== driver) break;
      if (page.kind !== 'page')
        throw new RecordsUnavailable(
          `Redis may have lost records of ${each}: it is not known which sources are in use`,
        );
      for (const uid of page.skeletons.flatMap((text) => sourceUidIn(text) ?? [])) uids.add(uid);
      cursor = page.cursor;
    } while (cursor !== '0');
  }
  return uids;
}
