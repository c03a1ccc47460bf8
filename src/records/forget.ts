import type { Redis } from 'ioredis';
import { forgottenKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import { defineScript } from '../redis/script.ts';

/** KEYS record, open records, log of what was forgotten. ARGV id, who and why (JSON). Answers
 * {'none'} {'busy', waitMs} {'forgotten', state}. A live owner is not disturbed: its call may make
 * the volume this very moment. */
const forgetScript = defineScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local r = redis.call('HMGET', KEYS[1], 'state', 'owner', 'until')
if not r[1] then return {'none'} end
local left = (tonumber(r[3] or '0') or 0) - now
if r[2] and r[2] ~= '' and left > 0 then return {'busy', tostring(left)} end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('LPUSH', KEYS[3], ARGV[2])
redis.call('LTRIM', KEYS[3], 0, 999)
return {'forgotten', r[1]}
`);

export type Forgotten =
  | { readonly kind: 'none' }
  | { readonly kind: 'busy'; readonly waitMs: number }
  | { readonly kind: 'forgotten'; readonly state: string };

/** The operator's exit: drops a record although it is not known whether its volume exists. What was
 * forgotten, by whom and why, is kept in Redis (the last thousand). */
export async function forgetRecord(
  redis: Redis,
  place: { readonly prefix: string; readonly driver: string; readonly id: string },
  note: { readonly by: string; readonly why: string; readonly atMs: number },
): Promise<Forgotten> {
  const { prefix, driver, id } = place;
  const keys = [
    volumeRecordKey(prefix, driver, id),
    openRecordsKey(prefix, driver),
    forgottenKey(prefix, driver),
  ];
  // The script answers a list of texts, as its head says.
  const [word, detail] = (await forgetScript.run(redis, keys, [
    id,
    JSON.stringify({ id, ...note }),
  ])) as readonly string[];
  if (word === 'busy') return { kind: 'busy', waitMs: Number(detail) };
  return word === 'forgotten' ? { kind: 'forgotten', state: detail ?? '' } : { kind: 'none' };
}
