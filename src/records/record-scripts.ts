import { defineScript } from '../redis/script.ts';

/* The compare-and-set scripts of the volume record (docs/flow.md, design rules 1 to 5). Each is one
 * atomic step in Redis.
 *
 * KEYS[1]  the record, a hash KEYS[2] the open records of the driver, a hash: record id -> job key
 * KEYS[3]  the blessing of the driver: hash of epoch and quarantineUntil; see blessing.ts
 * KEYS[4]  the active gateway of the driver: hash of endpoint and openAt; see
 *          active-gateway/active-gateway.ts. Only where something is opened.
 * ARGV[1]  owner of the attempt        ARGV[2…] named at each script
 *
 * Fields   v      format version
 *          state  creating | suspect | stored | deleting | gone
 *          owner  who is at it, '' when nobody is until end of that ownership, Redis' own ms
 *          amb    1 when a call may have done something that no answer told us of
 *          call   the latest time (Redis' ms) at which a call of ours of unknown end may still have
 *                 been under way
 *          ep     the gateway that the last attempt was given
 *          prev   state, amb and n before this attempt, '' when there was no record: what "not
 *                 forwarded" goes back to
 *          st     1 when the ambiguous calls of before had settled as this attempt was opened: a
 *                 refusal counts from there, not from when it is written down
 *          n      attempts so far since ms of the first open code last gRPC code
 *          key    job key (JSON) req, skel, secret, ans: the stored request, see VolumeRequest and
 *                 VolumeAnswer
 *
 * Answers  {'stale', epoch} where Redis was emptied since the caller read its object (rule 6);
 *          {'no-incarnation'} {'quarantine', waitMs} where nothing may be opened yet (rule 6);
 *          {'moved', waitMs} {'elsewhere', waitMs, endpoint} where no gateway
 * may be called yet (rule 7); {'foreign', holder} where another provisioner leads and nothing is
 * open; {'lost'} when the caller's ownership is over; else named at each script. */

const NOW = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
`;

/* What Redis held may have been lost lately: nothing is opened for one ownership period, and what
 * is opened before calls of the time before have settled begins ambiguous (rule 6). ARGV[10] of a
 * creation and ARGV[4] of a deletion is the settle time. What the caller read before the loss may
 * be long gone, so it names the epoch that it knew then; '' = it read nothing. */
const checkIncarnation = (settleMs: string, epoch: string): string => `
local incarnation = redis.call('HMGET', KEYS[3], 'epoch', 'quarantineUntil', 'beat', 'foreign')
if not incarnation[1] then return {'no-incarnation'} end
if ${epoch} ~= '' and ${epoch} ~= incarnation[1] then return {'stale', incarnation[1]} end
local history = incarnation[1] .. ' ' .. (incarnation[3] or '0')
local quarantineUntil = tonumber(incarnation[2] or '0')
if now < quarantineUntil then return {'quarantine', tostring(quarantineUntil - now)} end
local settledAt = quarantineUntil + tonumber(${settleMs})
`;

/* One gateway at a time gets calls; a new one only when those of the one before have ended (rule
 * 7). '' = nobody has named one. */
const ACTIVE = `
local g = redis.call('HMGET', KEYS[4], 'endpoint', 'openAt')
local endpoint, openAt = g[1] or '', tonumber(g[2] or '0')
if endpoint ~= '' and now < openAt then return {'moved', tostring(openAt - now)} end
`;

/* Replicas of a driver have locks of their own, so that one does not know of a call that the other
 * may still be at: a volume whose last call's end is unknown goes to another gateway only once that
 * call has settled (rule 7). */
const elsewhere = (isUnknown: string, settleMs: string): string => `
if endpoint ~= '' and ${isUnknown} then
  local last = redis.call('HMGET', KEYS[1], 'ep', 'call')
  local wait = tonumber(last[2] or '0') + tonumber(${settleMs}) - now
  if last[1] and last[1] ~= '' and last[1] ~= endpoint and wait > 0 then return {'elsewhere', tostring(wait), last[1]} end
end
`;

/* An owner whose time has passed is taken over: nobody knows what became of its call, so the record
 * turns ambiguous (rule 2). */
const TAKE_OVER = `
local r = redis.call('HMGET', KEYS[1], 'state', 'owner', 'until', 'amb', 'n')
local state, owner, untilMs, amb, n = r[1], r[2], tonumber(r[3] or '0'), r[4] or '0', tonumber(r[5] or '0')
if owner and owner ~= '' then
  if owner ~= ARGV[1] and untilMs > now then return {'busy', tostring(untilMs - now), state} end
  if state == 'creating' then
    amb = '1'
    redis.call('HSET', KEYS[1], 'amb', '1', 'call', tostring(untilMs))
  elseif state == 'deleting' then
    redis.call('HSET', KEYS[1], 'call', tostring(untilMs))
  end
end
`;

const OWNED = `
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return {'lost'} end
`;

/* Expiry of what is only remembered, not worked on: a day. */
const DAY_S = '86400';

/** ARGV ownMs, mode (plan | existing | again | resolve), jobKey, request, skeleton, secret,
 * endpoint, id, settleMs, epoch. plan: open, or take up what is there. existing: take up what is
 * there only. again: as plan, also from `stored` (its PV is gone). resolve: repeat the creation of
 * an ambiguous `stored` (rule 5). Answers {'none'} {'opened', history, endpoint} {'busy', waitMs,
 * state} {'closed', stored|deleting|gone} {'replay', history, amb, attempt, call, since, code,
 * request, skeleton, secret, endpoint, answer} */
export const openCreate =
  defineScript(`${NOW}${checkIncarnation('ARGV[10]', 'ARGV[11]')}${ACTIVE}${TAKE_OVER}
local ownMs, mode, id = tonumber(ARGV[2]), ARGV[3], ARGV[9]
local untilNew = tostring(now + ownMs)
if not state then
  if mode ~= 'plan' and mode ~= 'again' then return {'none'} end
  if incarnation[4] then return {'foreign', incarnation[4]} end
  redis.call('HSET', KEYS[1], 'v', '1', 'state', 'creating', 'owner', ARGV[1], 'until', untilNew, 'amb', now < settledAt and '1' or '0', 'n', '1', 'since', tostring(now),
    'st', '0', 'call', tostring(quarantineUntil),
    'prev', '', 'key', ARGV[4], 'req', ARGV[5], 'skel', ARGV[6], 'secret', ARGV[7],
    'ep', endpoint ~= '' and endpoint or ARGV[8])
  redis.call('HSET', KEYS[2], id, ARGV[4])
  return {'opened', history, endpoint}
end
if state == 'deleting' or state == 'gone' then return {'closed', state} end
${elsewhere("amb == '1' and (state ~= 'stored' or mode == 'again' or mode == 'resolve')", 'ARGV[10]')}
if state == 'stored' then
  if mode == 'again' and redis.call('HEXISTS', KEYS[1], 'req') == 0 then
    redis.call('HSET', KEYS[1], 'req', ARGV[5], 'skel', ARGV[6], 'secret', ARGV[7], 'ep', ARGV[8], 'key', ARGV[4], 'since', tostring(now))
  elseif mode ~= 'again' and not (mode == 'resolve' and amb == '1' and redis.call('HEXISTS', KEYS[1], 'req') == 1) then
    return {'closed', state}
  end
  redis.call('PERSIST', KEYS[1])
end
local isSettled = now >= (tonumber(redis.call('HGET', KEYS[1], 'call') or '0') or 0) + tonumber(ARGV[10])
redis.call('HSET', KEYS[1], 'state', 'creating', 'owner', ARGV[1], 'until', untilNew, 'st', amb == '1' and isSettled and '1' or '0', 'n', tostring(n + 1), 'prev', state .. ' ' .. amb .. ' ' .. n)
if endpoint ~= '' then redis.call('HSET', KEYS[1], 'ep', endpoint) end
redis.call('HSETNX', KEYS[2], id, redis.call('HGET', KEYS[1], 'key') or ARGV[4])
local f = redis.call('HMGET', KEYS[1], 'call', 'since', 'code', 'req', 'skel', 'secret', 'ep', 'ans')
return {'replay', history, amb, tostring(n + 1), f[1] or '0', f[2] or '0', f[3] or '', f[4] or '', f[5] or '', f[6] or '', f[7] or '', f[8] or ''}
`);

/** ARGV id, proof (answered | seen). The PV exists. answered: our own call succeeded, which clears
 * the mark. seen: only the PV was looked at: mark and request stay, without expiry, since a call
 * left behind may still be at work. Answers {'ok'}. */
export const closeStored = defineScript(`${OWNED}
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'stored', 'owner', '')
if ARGV[3] == 'seen' and redis.call('HGET', KEYS[1], 'amb') == '1' then
  redis.call('HDEL', KEYS[1], 'until', 'prev')
else
  redis.call('HSET', KEYS[1], 'amb', '0')
  redis.call('HDEL', KEYS[1], 'until', 'prev', 'req', 'skel', 'secret', 'ans', 'call', 'code')
  redis.call('EXPIRE', KEYS[1], ${DAY_S})
end
return {'ok'}
`);

/** ARGV id, settleMs, code. The driver itself refused. Answers {'removed'} where that proves
 * absence, else {'suspect', msUntilSettled} (rule 4): the attempt must have begun after the settle
 * time, since a call left behind may make the volume between a refusal and its being written down.
 * A volume that was stored before (resolved, or asked for again) goes back to stored, its mark
 * cleared: the driver made it once, whatever it says now. */
export const closeRefused = defineScript(`${OWNED}${NOW}
local r = redis.call('HMGET', KEYS[1], 'amb', 'call', 'prev', 'st')
local settled = (tonumber(r[2] or '0') or 0) + tonumber(ARGV[3])
if r[1] == '1' and r[4] ~= '1' then
  redis.call('HSET', KEYS[1], 'state', 'suspect', 'owner', '', 'code', ARGV[4])
  return {'suspect', tostring(math.max(0, settled - now))}
end
redis.call('HDEL', KEYS[2], ARGV[2])
if string.sub(r[3] or '', 1, 7) == 'stored ' then
  redis.call('HSET', KEYS[1], 'state', 'stored', 'owner', '', 'amb', '0')
  redis.call('HDEL', KEYS[1], 'until', 'prev', 'req', 'skel', 'secret', 'ans', 'call', 'code')
  redis.call('EXPIRE', KEYS[1], ${DAY_S})
else
  redis.call('DEL', KEYS[1])
end
return {'removed'}
`);

/** ARGV code. The call's end is unknown: the record stays open and is ambiguous from now on.
 * Answers {'ok', previousCode}. */
export const leaveAmbiguous = defineScript(`${OWNED}${NOW}
local r = redis.call('HMGET', KEYS[1], 'until', 'call', 'code')
local call = math.max(tonumber(r[2] or '0') or 0, tonumber(r[1] or '0') or 0)
redis.call('HSET', KEYS[1], 'state', 'creating', 'owner', '', 'amb', '1', 'call', tostring(call), 'code', ARGV[2])
redis.call('HDEL', KEYS[1], 'ans')
return {'ok', r[3] or ''}
`);

/** ARGV answer. The driver made the volume, but the PV could not be written: the answer is kept and
 * the next run only writes. Answers {'ok'}. */
export const leaveAnswered = defineScript(`${OWNED}
redis.call('HSET', KEYS[1], 'state', 'creating', 'owner', '', 'amb', '0', 'ans', ARGV[2])
return {'ok'}
`);

/** ARGV id. Nothing was sent: back to what was before this attempt. Answers {'ok', state}, 'none'
 * where there was no record. */
export const revert = defineScript(`${OWNED}
local prev = redis.call('HGET', KEYS[1], 'prev') or ''
if prev == '' then
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], ARGV[2])
  return {'ok', 'none'}
end
local state, amb, n = string.match(prev, '^(%a+) (%d) (%d+)$')
redis.call('HSET', KEYS[1], 'state', state, 'amb', amb, 'n', n, 'owner', '')
if state == 'stored' then
  redis.call('HDEL', KEYS[2], ARGV[2])
  if amb == '0' then redis.call('EXPIRE', KEYS[1], ${DAY_S}) end
end
return {'ok', state}
`);

/** ARGV ownMs, jobKey, settleMs, id, epoch. A deletion starts only where no creation is open and
 * nothing is ambiguous (rules 1 and 5). Answers {'opened', untilMs, endpoint} {'busy', waitMs,
 * state} {'creating'} {'resolve'} {'settle', waitMs} {'gone'} */
export const openDelete =
  defineScript(`${NOW}${checkIncarnation('ARGV[4]', 'ARGV[6]')}${ACTIVE}${TAKE_OVER}
local ownMs, settleMs, id = tonumber(ARGV[2]), tonumber(ARGV[4]), ARGV[5]
if state == 'creating' or state == 'suspect' then return {'creating'} end
if state == 'gone' then return {'gone'} end
if incarnation[4] and state ~= 'deleting' then return {'foreign', incarnation[4]} end
if not state and now < settledAt then return {'settle', tostring(settledAt - now)} end
if state == 'stored' and amb == '1' then
  if redis.call('HEXISTS', KEYS[1], 'req') == 1 then return {'resolve'} end
  local wait = tonumber(redis.call('HGET', KEYS[1], 'call') or '0') + settleMs - now
  if wait > 0 then return {'settle', tostring(wait)} end
end
${elsewhere("state == 'deleting'", 'ARGV[4]')}
local untilNew = tostring(now + ownMs)
redis.call('PERSIST', KEYS[1])
if endpoint ~= '' then redis.call('HSET', KEYS[1], 'ep', endpoint) end
redis.call('HSET', KEYS[1], 'v', '1', 'state', 'deleting', 'owner', ARGV[1], 'until', untilNew, 'amb', '0', 'n', tostring(n + 1), 'key', ARGV[3],
  'prev', state and (state .. ' ' .. amb .. ' ' .. n) or '')
redis.call('HSETNX', KEYS[1], 'since', tostring(now))
redis.call('HSET', KEYS[2], id, ARGV[3])
return {'opened', untilNew, endpoint}
`);

/** ARGV id. The volume is gone: a creation for this id is refused for a day. Answers {'ok'}. */
export const closeGone = defineScript(`${OWNED}
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'v', '1', 'state', 'gone', 'owner', '', 'amb', '0')
redis.call('EXPIRE', KEYS[1], ${DAY_S})
redis.call('HDEL', KEYS[2], ARGV[2])
return {'ok'}
`);

/** ARGV code. DeleteVolume failed or its end is unknown: stays deleting, free for the next attempt.
 * Answers {'ok', previousCode}. */
export const leaveDeleting = defineScript(`${OWNED}
local code = redis.call('HGET', KEYS[1], 'code') or ''
redis.call('HSET', KEYS[1], 'owner', '', 'code', ARGV[2], 'call', redis.call('HGET', KEYS[1], 'until') or '0')
return {'ok', code}
`);

/** ARGV id, to (stored | gone). An open deletion whose PV is to be kept after all, or has vanished;
 * a live owner is left alone. Answers {'ok'} {'none'} {'busy', waitMs, state}. */
export const endDeletion = defineScript(`${NOW}${TAKE_OVER}
if state ~= 'deleting' then return {'none'} end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'owner', '')
redis.call('HDEL', KEYS[1], 'until', 'prev', 'code')
redis.call('EXPIRE', KEYS[1], ${DAY_S})
return {'ok'}
`);

/** ARGV id, history, jobKey, request, skeleton, secret, endpoint, ownMs. A worker looks after a
 * creation that it left open: is it still there? Where it vanished with all that Redis held it is
 * written again, ambiguous and free: another epoch than at its opening, or, before the leader has
 * noticed, the same one with an earlier beat (restored from a backup). Answers {'open'} (also
 * before a leader has vouched for what Redis holds) {'closed'} {'rewritten', history}. */
export const rewriteLost = defineScript(`${NOW}
local state = redis.call('HGET', KEYS[1], 'state')
if state then return {(state == 'creating' or state == 'suspect') and 'open' or 'closed'} end
local b = redis.call('HMGET', KEYS[3], 'epoch', 'beat')
if not b[1] then return {'open'} end
local epoch, beat = string.match(ARGV[2], '^(%S*) (%d+)$')
if b[1] == epoch and tonumber(b[2] or '0') >= tonumber(beat) then return {'closed'} end
redis.call('HSET', KEYS[1], 'v', '1', 'state', 'creating', 'owner', '', 'until', '0', 'amb', '1', 'call', tostring(now + tonumber(ARGV[8])), 'n', '1', 'since', tostring(now),
  'prev', '', 'key', ARGV[3], 'req', ARGV[4], 'skel', ARGV[5], 'secret', ARGV[6], 'ep', ARGV[7])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return {'rewritten', b[1] .. ' ' .. (b[2] or '0')}
`);
