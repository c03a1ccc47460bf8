import { defineNamedScript } from '../redis/named-script.ts';
import { REQUEST } from './creation-scripts.ts';
import {
  COUNT_ARGS,
  COUNTED,
  NOTICE_LOSS,
  NOTICE_LOSS_AND_KEEP,
  WENT_BACK,
} from './opening-count.ts';
import { CLOCK_ARGS, MOVE_CLOCK, RECORD_NOW } from './record-clock.ts';
import { OPENING_KEYS } from './record-scripts.ts';

/* The scripts by which a process checks the creations that it left open, and writes those again
 * that Redis has lost (record rules 6 and 8). record-scripts.ts explains keys and fields. */

/** Reads the states of many records in one step, and whether Redis went back. Moves the record
 * clock on.
 *
 * Args      ids     record ids, separated by spaces
 *           prefix  what their keys begin with
 * Answers   checked   `states`: for each id `o` open, `c` closed, `-` no record; `dataEpoch`:
 *                     that of Redis' data, '' while none is confirmed, or without ids
 *           or WENT_BACK */
export const checkLeftOpen = defineNamedScript({
  keys: ['dataEpochKey', 'countKey'],
  args: { ids: 'text', prefix: 'text', ...CLOCK_ARGS, ...COUNT_ARGS },
  answers: { ...WENT_BACK, checked: { states: 'text', dataEpoch: 'text' } },
  lua: `${MOVE_CLOCK}${NOTICE_LOSS_AND_KEEP}
if ids == '' then return {'checked', 'states', '', 'dataEpoch', ''} end
local letters = {creating = 'o', suspect = 'o'}
local states = {}
for id in string.gmatch(ids, '%S+') do
  local state = redis.call('HGET', prefix .. id, 'state')
  states[#states + 1] = state and (letters[state] or 'c') or '-'
end
return {'checked', 'states', table.concat(states),
  'dataEpoch', redis.call('HGET', dataEpochKey, 'epoch') or ''}
`,
});

/** Any state but `deleting` to `creating`, ambiguous and without owner, where Redis has lost the
 * creation that a process left open. A missing record was lost if the data epoch has changed since
 * it was opened; otherwise another run closed it. Where Redis has lost an opening of this process,
 * no state that Redis has now tells how the call ended, `gone` included: the call may create the
 * volume again. A run that opened the record before the loss becomes owner no more, so it can't
 * clear the mark.
 *
 * Args      dataEpoch    as it was when the record was opened
 *           isLost       1 where Redis has lost an opening of this process
 * Answers   open         it is still open, a deletion is under way, or no data epoch is confirmed
 *           closed       another run closed it
 *           rewritten    in the current data epoch
 *           or WENT_BACK */
export const rewriteLost = defineNamedScript({
  keys: OPENING_KEYS,
  args: {
    id: 'text',
    job: 'text',
    ownMs: 'number',
    dataEpoch: 'text',
    isLost: 'text',
    ...COUNT_ARGS,
    ...REQUEST,
  },
  answers: { ...WENT_BACK, open: {}, closed: {}, rewritten: { dataEpoch: 'text', ...COUNTED } },
  lua: `${RECORD_NOW}${NOTICE_LOSS}
local current = redis.call('HGET', dataEpochKey, 'epoch')
if not current then return {'open'} end
local state = redis.call('HGET', recordKey, 'state')
local isOpen = state == 'creating' or state == 'suspect'
if isLost ~= '1' then
  if state then return {isOpen and 'open' or 'closed'} end
  if current == dataEpoch then return {'closed'} end
elseif state == 'deleting' then
  return {'open'}
end
local call = math.max(tonumber(redis.call('HGET', recordKey, 'call') or 0), now + ownMs)
if not isOpen then
  redis.call('DEL', recordKey)
  redis.call('HSET', recordKey, 'v', '1', 'n', '1', 'since', redisNow, 'key', job,
    'req', request, 'skel', pvTemplate, 'secret', secret, 'ep', endpoint, 'seal', seal)
end
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'until', '0', 'amb', '1',
  'st', '0', 'call', call, 'prev', '')
redis.call('HDEL', recordKey, 'ans')
redis.call('HSETNX', openKey, id, job)
return {'rewritten', 'dataEpoch', current, 'count', countOpening()}
`,
});
