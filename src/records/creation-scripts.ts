import { defineNamedScript, REDIS_NOW } from '../redis/named-script.ts';
import * as shared from './record-scripts.ts';

/* The scripts of a creation. record-scripts.ts explains keys, fields and common arguments. */

/** The fields of RequestTexts. */
const REQUEST = { request: 'text', skeleton: 'text', secret: 'text', endpoint: 'text' } as const;

/** What identifies Redis' data at one moment; see incarnation.ts. */
const INCARNATION = { incarnation: 'text', sequence: 'number' } as const;

/** Lua: the record becomes `stored` and unambiguous, and expires after a day. */
const BECOME_STORED = `
redis.call('HSET', recordKey, 'state', 'stored', 'owner', '', 'amb', '0')
redis.call('HDEL', recordKey, 'until', 'prev', 'req', 'skel', 'secret', 'ans', 'call', 'code')
redis.call('EXPIRE', recordKey, ${shared.REMEMBERED_S})
`;

/** No record, `creating`, `suspect` or `stored` to `creating`, with a new owner.
 *
 * mode      plan      opens a new record with the given request, or takes up the open one
 *           existing  only takes up the open one
 *           again     as plan; also takes up `stored`, because the PV was removed
 *           resolve   as existing; also takes up an ambiguous `stored` (record rule 5)
 * Answers   opened    with the given request
 *           replay    with the stored request, which has to be sent again
 *           closed    there is nothing to do for this mode
 *           none      no record, and the mode opens none
 *           or NOT_OPENED */
export const openCreate = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { ...shared.OPENING_ARGS, mode: ['plan', 'existing', 'again', 'resolve'], ...REQUEST },
  answers: {
    ...shared.NOT_OPENED,
    none: {},
    closed: { state: ['stored', 'deleting', 'gone'] },
    opened: { ...INCARNATION, endpoint: 'text' },
    replay: { ...INCARNATION, ambiguous: 'flag', ...REQUEST, answer: 'text' },
  },
  lua: `${shared.BEGIN_OPENING}
if not state then
  if mode ~= 'plan' and mode ~= 'again' then return {'none'} end
  if foreignLeader then return {'foreign', 'holder', foreignLeader} end
  redis.call('HSET', recordKey, 'v', '1', 'state', 'creating', 'owner', owner, 'until', untilNew,
    'amb', now < lossSettledAt and '1' or '0', 'n', '1', 'since', now, 'st', '0',
    'call', quarantineUntil, 'prev', '', 'key', job,
    'req', request, 'skel', skeleton, 'secret', secret,
    'ep', activeEndpoint ~= '' and activeEndpoint or endpoint)
  redis.call('HSET', openKey, id, job)
  return {'opened', 'incarnation', incarnation, 'sequence', sequence or 0,
    'endpoint', activeEndpoint}
end
if state == 'deleting' or state == 'gone' then return {'closed', 'state', state} end
local sendsAgain = state ~= 'stored' or mode == 'again' or mode == 'resolve'
${shared.requireSameGateway("amb == '1' and sendsAgain")}
if state == 'stored' then
  local hasRequest = redis.call('HEXISTS', recordKey, 'req') == 1
  if mode == 'again' and not hasRequest then
    redis.call('HSET', recordKey, 'req', request, 'skel', skeleton, 'secret', secret,
      'ep', endpoint, 'key', job, 'since', now)
  elseif mode ~= 'again' and not (mode == 'resolve' and amb == '1' and hasRequest) then
    return {'closed', 'state', state}
  end
  redis.call('PERSIST', recordKey)
end
local callSettledAt = tonumber(redis.call('HGET', recordKey, 'call') or 0) + settleMs
redis.call('HSET', recordKey, 'state', 'creating', 'owner', owner, 'until', untilNew,
  'st', amb == '1' and now >= callSettledAt and '1' or '0', 'n', n + 1, 'prev', previous)
if activeEndpoint ~= '' then redis.call('HSET', recordKey, 'ep', activeEndpoint) end
redis.call('HSETNX', openKey, id, redis.call('HGET', recordKey, 'key') or job)
local req, skel, secretRef, ep, ans = unpack(redis.call(
  'HMGET', recordKey, 'req', 'skel', 'secret', 'ep', 'ans'))
return {'replay', 'incarnation', incarnation, 'sequence', sequence or 0, 'ambiguous', amb,
  'request', req or '', 'skeleton', skel or '', 'secret', secretRef or '', 'endpoint', ep or '',
  'answer', ans or ''}
`,
});

/** `creating` to `stored`: the PV exists.
 *
 * proof     answered  our own call succeeded: the record becomes unambiguous
 *           seen      only the PV was read: an ambiguous record keeps its mark and its request, and
 *                     does not expire, since an earlier call may still be at work */
export const closeStored = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', id: 'text', proof: ['answered', 'seen'] },
  answers: { lost: {}, ok: {} },
  lua: `${shared.REQUIRE_OWNER}
redis.call('HDEL', openKey, id)
if proof == 'seen' and redis.call('HGET', recordKey, 'amb') == '1' then
  redis.call('HSET', recordKey, 'state', 'stored', 'owner', '')
  redis.call('HDEL', recordKey, 'until', 'prev')
else ${BECOME_STORED} end
return {'ok'}
`,
});

/** `creating` to no record where the driver's refusal proves absence, else to `suspect` (record
 * rule 4). The settle time must have been over when the attempt was opened, not only now: an
 * earlier call may create the volume between the refusal and this script. A record that was
 * `stored` before this attempt becomes `stored` again, unambiguous: the driver did create the
 * volume. */
export const closeRefused = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', id: 'text', code: 'text' },
  answers: { lost: {}, removed: {}, suspect: {} },
  lua: `${shared.REQUIRE_OWNER}
local amb, prev, isSettled = unpack(redis.call('HMGET', recordKey, 'amb', 'prev', 'st'))
if amb == '1' and isSettled ~= '1' then
  redis.call('HSET', recordKey, 'state', 'suspect', 'owner', '', 'code', code)
  return {'suspect'}
end
redis.call('HDEL', openKey, id)
if string.sub(prev or '', 1, 7) == 'stored ' then ${BECOME_STORED}
else redis.call('DEL', recordKey) end
return {'removed'}
`,
});

/** `creating`, ambiguous from now on and without owner: the end of the call is unknown. */
export const leaveAmbiguous = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', code: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${shared.REQUIRE_OWNER}
local untilMs, call = unpack(redis.call('HMGET', recordKey, 'until', 'call'))
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'amb', '1',
  'call', math.max(tonumber(call or 0), tonumber(untilMs or 0)), 'code', code)
redis.call('HDEL', recordKey, 'ans')
return {'ok'}
`,
});

/** `creating`, unambiguous and without owner: the driver created the volume, but the PV could not
 * be written. The next run only writes it. */
export const leaveAnswered = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', answer: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${shared.REQUIRE_OWNER}
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'amb', '0', 'ans', answer)
return {'ok'}
`,
});

/** No record to `creating`, ambiguous and without owner, where Redis has lost the record of a
 * creation that a worker left open. A missing record was lost if the incarnation has changed since
 * it was opened, or if the sequence went back (restored from a backup, and the leader has not
 * noticed yet). Otherwise another run closed it.
 *
 * Args      incarnation, sequence  as they were when the record was opened
 * Answers   open       it is still open, or no incarnation is confirmed yet
 *           closed     another run closed it
 *           rewritten  with the current incarnation and sequence */
export const rewriteLost = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { id: 'text', job: 'text', ownMs: 'number', ...INCARNATION, ...REQUEST },
  answers: { open: {}, closed: {}, rewritten: INCARNATION },
  lua: `${REDIS_NOW}
local state = redis.call('HGET', recordKey, 'state')
if state then return {(state == 'creating' or state == 'suspect') and 'open' or 'closed'} end
local current, currentSequence = unpack(redis.call('HMGET', incarnationKey, 'epoch', 'beat'))
if not current then return {'open'} end
if current == incarnation and tonumber(currentSequence or 0) >= sequence then return {'closed'} end
redis.call('HSET', recordKey, 'v', '1', 'state', 'creating', 'owner', '', 'until', '0',
  'amb', '1', 'call', now + ownMs, 'n', '1', 'since', now, 'prev', '', 'key', job,
  'req', request, 'skel', skeleton, 'secret', secret, 'ep', endpoint)
redis.call('HSET', openKey, id, job)
return {'rewritten', 'incarnation', current, 'sequence', currentSequence or 0}
`,
});
