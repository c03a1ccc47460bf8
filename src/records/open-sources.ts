import type { Redis } from 'ioredis';
import { listQueues } from '../queue/queues.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import { dataEpochKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import { RECORD_NOW } from './record-clock.ts';
import { sourceUidIn } from './stored-request.ts';
import { askRedis, RecordsUnavailable } from './ask-redis.ts';

/** Records that one script reads: Redis does nothing else meanwhile. */
const PAGE = 200;

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
local nextCursor, ids = unpack(redis.call('HSCAN', openKey, cursor, 'COUNT', ${PAGE}))
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
