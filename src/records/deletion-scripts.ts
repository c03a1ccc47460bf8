import { defineNamedScript } from '../redis/named-script.ts';
import { RECORD_NOW } from './record-clock.ts';
import * as shared from './record-scripts.ts';

/* The scripts of a deletion. record-scripts.ts explains keys, fields and common arguments. */

/** No record, `stored` or `deleting` to `deleting`, with a new owner.
 *
 * endpoint  the gateway to call where no leader has named one, '' for none
 * Answers   opened
 *           creating  a creation is open, and has to end first (record rule 1)
 *           settle    an earlier creation of unknown end may be at work in the driver (record rule
 *                     5), or one that lost data knew of
 *           gone      the volume is deleted
 *           or NOT_OPENED */
export const openDelete = defineNamedScript({
  keys: shared.OPENING_KEYS,
  args: { ...shared.OPENING_ARGS, handle: 'text', endpoint: 'text' },
  answers: {
    ...shared.NOT_OPENED,
    opened: { ...shared.OPENED, endpoint: 'text' },
    creating: {},
    settle: { waitMs: 'number' },
    gone: {},
  },
  lua: `${shared.BEGIN_OPENING}
if isRepeated and state == 'deleting' then return answerOpened() end
if state == 'creating' or state == 'suspect' then return {'creating'} end
-- After a loss of data there may be a second volume of this claim: if nothing is sent for it, the
-- record must not say that it is gone.
if state == 'gone' then
  if redis.call('HGET', recordKey, 'handle') == handle then return {'gone'} end
  previous = ''
end
if halt and state ~= 'deleting' then return halt end
if state ~= 'deleting' then
  local call = state == 'stored' and redis.call('HGET', recordKey, 'call') or 0
  local settlesInMs = math.max(lossSettledAt, call + settleMs) - now
  if settlesInMs > 0 then return {'settle', 'waitMs', settlesInMs} end
end
local target = activeEndpoint ~= '' and activeEndpoint or endpoint
${shared.requireSameGateway("state == 'deleting'", 'target')}
redis.call('PERSIST', recordKey)
if target ~= '' then redis.call('HSET', recordKey, 'ep', target) end
redis.call('HSET', recordKey, 'v', '1', 'state', 'deleting', 'owner', owner, 'until', untilNew,
  'amb', '0', 'n', n + 1, 'key', job, 'prev', previous, 'handle', handle)
redis.call('HSETNX', recordKey, 'since', redisNow)
redis.call('HSET', openKey, id, job)
return answerOpened()
`,
});

/** `deleting` to `gone`: the driver deleted the volume.
 *
 * goneMs    for how long no creation is opened */
export const closeGone = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', id: 'text', goneMs: 'number' },
  answers: { lost: {}, ok: {} },
  lua: `${RECORD_NOW}${shared.REQUIRE_OWNER}
local handle = redis.call('HGET', recordKey, 'handle') or ''
redis.call('DEL', recordKey)
redis.call('HSET', recordKey, 'v', '1', 'state', 'gone', 'owner', '', 'amb', '0', 'handle', handle,
  'until', now + goneMs)
redis.call('EXPIRE', recordKey, ${shared.REMEMBERED_S})
redis.call('HDEL', openKey, id)
return {'ok'}
`,
});

/** `deleting` without owner: DeleteVolume failed, or its end is unknown. */
export const leaveDeleting = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', code: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${shared.REQUIRE_OWNER}
local untilMs = redis.call('HGET', recordKey, 'until')
redis.call('HSET', recordKey, 'owner', '', 'code', code, 'call', untilMs or 0)
return {'ok'}
`,
});

/** `deleting` to `stored`, because the PV is to be kept after all, or to `gone`, because the PV has
 * vanished. Refuses while another owner is live. Answers `none` where no deletion is open. */
export const endDeletion = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', id: 'text', goneMs: 'number', to: ['stored', 'gone'] },
  answers: { ok: {}, none: {}, busy: shared.NOT_OPENED.busy },
  lua: `${RECORD_NOW}${shared.TAKE_OVER}
if state ~= 'deleting' then return {'none'} end
redis.call('HDEL', openKey, id)
redis.call('HDEL', recordKey, 'prev', 'code', 'call')
redis.call('HSET', recordKey, 'state', to, 'owner', '', 'until', to == 'gone' and now + goneMs or 0)
redis.call('EXPIRE', recordKey, ${shared.REMEMBERED_S})
return {'ok'}
`,
});
