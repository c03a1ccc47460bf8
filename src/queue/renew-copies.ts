import type { Redis } from 'ioredis';
import { defineNamedScript } from '../redis/named-script.ts';
import type { JobData } from './contract.ts';
import { type QueuePlace, queueRoot } from './queue-keys.ts';

/** On BullMQ's own keys, because one call serves 200 keys: by `Job.updateData` each would cost
 * three round trips, and there is one for each claim that is bound. */
const renew = defineNamedScript({
  keys: ['root'],
  args: { renewals: 'text' },
  answers: { ok: {} },
  lua: `
for _, renewal in ipairs(cjson.decode(renewals)) do
  local jobId = redis.call('GET', root .. 'de:' .. renewal.keyId)
  -- Most keys have none: their claim was bound.
  if jobId then
    local data, runs = unpack(redis.call('HMGET', root .. jobId, 'data', 'ats'))
    if data and not runs then redis.call('HSET', root .. jobId, 'data', renewal.data) end
  end
end
return {'ok'}
`,
});

/** Gives the jobs of keys other data, where they have not run yet. */
export async function renewCopies(
  redis: Redis,
  { prefix, queue }: QueuePlace,
  renewals: readonly { readonly keyId: string; readonly data: JobData }[],
): Promise<void> {
  const texts = renewals.map(({ keyId, data }) => ({ keyId, data: JSON.stringify(data) }));
  await renew.run(redis, { root: queueRoot(prefix, queue) }, { renewals: JSON.stringify(texts) });
}
