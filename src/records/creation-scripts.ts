import { defineNamedScript } from '../redis/named-script.ts';
import * as shared from './record-scripts.ts';

/* The scripts of a creation. record-scripts.ts explains keys, fields and common arguments. */

/** The fields of RequestTexts. */
export const REQUEST = {
  request: 'text',
  pvTemplate: 'text',
  secret: 'text',
  endpoint: 'text',
  seal: 'text',
} as const;

/** Lua: the record becomes `stored` and unambiguous, and expires after a day. It keeps when the
 * last call of unknown end ended at the latest, for a deletion (record rule 5). It is written anew:
 * Redis keeps a hash of few short fields in a third of the memory, but not one that was longer
 * before. */
const BECOME_STORED = `
local attempts, since, call = unpack(redis.call('HMGET', recordKey, 'n', 'since', 'call'))
redis.call('DEL', recordKey)
redis.call('HSET', recordKey, 'v', '1', 'state', 'stored', 'owner', '', 'amb', '0',
  'n', attempts or '1', 'since', since or '0')
if (tonumber(call) or 0) > 0 then redis.call('HSET', recordKey, 'call', call) end
redis.call('EXPIRE', recordKey, ${shared.REMEMBERED_S})
`;

/** No record, `creating`, `suspect` or `stored` to `creating`, with a new owner.
 *
 * mode      plan      opens a new record with the given request, or takes up the open one
 *           existing  only takes up the open one
 *           again     as plan; also takes up `stored`, because the PV was removed
 * Answers   opened    with the given request
 *           replay    with the stored request, which has to be sent again. `settlesInMs`: time
 *                     until no call of unknown end is at work any more, 0 where none is.
 *                     `isOfEarlierTerm`: another provisioner may have led since it was opened
 *           closed    there is nothing to do for this mode. `waitMs`: until a record that is `gone`
 *                     is forgotten, else 0
 *           none      no record, and the mode opens none
 *           or NOT_OPENED */
export const openCreate = defineNamedScript({
  keys: shared.OPENING_KEYS,
  args: { ...shared.OPENING_ARGS, mode: ['plan', 'existing', 'again'], ...REQUEST },
  answers: {
    ...shared.NOT_OPENED,
    none: {},
    closed: { state: ['stored', 'deleting', 'gone'], waitMs: 'number' },
    opened: { ...shared.OPENED, endpoint: 'text' },
    replay: {
      ...shared.OPENED,
      ambiguous: 'flag',
      settlesInMs: 'number',
      isOfEarlierTerm: 'flag',
      lastCode: 'text',
      ...REQUEST,
      answer: 'text',
    },
  },
  lua: `${shared.BEGIN_OPENING}
local goneMs = 0
if state == 'gone' then
  if untilMs == 0 then -- An earlier version wrote it.
    untilMs = now + ownMs + settleMs
    redis.call('HSET', recordKey, 'until', untilMs)
  end
  goneMs = untilMs - now
  if goneMs <= 0 then
    redis.call('DEL', recordKey)
    state = nil
  end
end
local function answerReplay(settlesInMs)
  local req, skel, secretRef, ep, ans, code, openedIn, seal = unpack(redis.call(
    'HMGET', recordKey, 'req', 'skel', 'secret', 'ep', 'ans', 'code', 'term', 'seal'))
  local isOfEarlierTerm = (otherProvisioner or (openedIn or '') ~= (term or '')) and '1' or '0'
  return {'replay', 'dataEpoch', dataEpoch, 'count', countOpening(), 'ambiguous', amb,
    'settlesInMs', settlesInMs, 'isOfEarlierTerm', isOfEarlierTerm,
    'request', req or '', 'pvTemplate', skel or '',
    'secret', secretRef or '', 'endpoint', ep or '', 'seal', seal or '', 'answer', ans or '',
    'lastCode', code or ''}
end
if not state then
  if mode == 'existing' then return {'none'} end
  if halt then return halt end
  redis.call('HSET', recordKey, 'v', '1', 'state', 'creating', 'owner', owner, 'until', untilNew,
    'amb', now < lossSettledAt and '1' or '0', 'n', '1', 'since', redisNow, 'st', '0',
    'call', now < lossSettledAt and quarantineUntil or 0, 'prev', '', 'key', job, 'term', term or '',
    'req', request, 'skel', pvTemplate, 'secret', secret, 'seal', seal,
    'ep', activeEndpoint ~= '' and activeEndpoint or endpoint)
  redis.call('HSET', openKey, id, job)
  return answerOpened()
end
-- After a loss, calls that the lost data knew of may be at work until its quarantine ends.
local call = math.max(tonumber(redis.call('HGET', recordKey, 'call') or 0), quarantineUntil)
local settlesInMs = amb == '1' and math.max(0, call + settleMs - now) or 0
if isRepeated and state == 'creating' then
  if redis.call('HGET', recordKey, 'prev') == '' then return answerOpened() end
  return answerReplay(settlesInMs)
end
if state == 'deleting' or state == 'gone' or (state == 'stored' and mode ~= 'again') then
  return {'closed', 'state', state, 'waitMs', goneMs}
end
if state == 'stored' and halt then return halt end
${shared.requireSameGateway("amb == '1'")}
if state == 'stored' then
  redis.call('HSET', recordKey, 'req', request, 'skel', pvTemplate, 'secret', secret, 'seal', seal,
    'ep', endpoint, 'key', job, 'since', redisNow, 'term', term or '')
  redis.call('PERSIST', recordKey)
end
redis.call('HSET', recordKey, 'state', 'creating', 'owner', owner, 'until', untilNew,
  'st', amb == '1' and settlesInMs == 0 and '1' or '0', 'n', n + 1, 'prev', previous,
  'call', call)
if activeEndpoint ~= '' then redis.call('HSET', recordKey, 'ep', activeEndpoint) end
redis.call('HSETNX', openKey, id, redis.call('HGET', recordKey, 'key') or job)
return answerReplay(settlesInMs)
`,
});

/** `creating` to `stored`: the PV exists. */
export const closeStored = defineNamedScript({
  keys: shared.RECORD_KEYS,
  args: { owner: 'text', id: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${shared.REQUIRE_OWNER}
redis.call('HDEL', openKey, id)
${BECOME_STORED}
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
  args: { owner: 'text', answer: 'text', code: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${shared.REQUIRE_OWNER}
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'amb', '0', 'ans', answer,
  'code', code)
return {'ok'}
`,
});
