import type { AnswerOf } from '../redis/named-script.ts';
import { RECORD_NOW } from './record-clock.ts';

/* What the Lua scripts of the volume record share. The scripts that open a record are in
 * volume-record.ts, those that leave or close it in record-ends.ts, those after a loss in
 * lost-records.ts. Each is one atomic compare-and-set. Together they enforce the record rules of
 * docs/invariants.md.
 *
 * Keys
 * recordKey       the record, a hash
 * openKey         the open records of the driver, a hash: record id to job key
 * dataEpochKey    the epoch of Redis' data, a hash; see data-epoch.ts
 * gatewayKey      the active gateway, a hash; see active-gateway.ts
 * countKey        the opening count of the process that calls; see below
 * begunKey        with soft state, the claims whose creation began here since the last loss; see
 *                 below
 *
 * Fields of the record. Times are ms of the record clock; see record-clock.ts.
 * v       version of this format: 1
 * state   see RecordState
 * owner   the run that may write to the record, '' for none
 * until   end of its ownership; in `gone`: until when no creation is opened. No call that was begun
 *         before the deletion can arrive after an ownership and the settle time
 * amb     1 when the record is ambiguous: a call may have had an effect that no answer told us of
 * call    the latest time at which a call of ours of unknown end may still have been under way; 0
 *         for none. It outlives the mark, for a deletion (record rule 5)
 * ep      the gateway of the last attempt
 * prev    state, amb and n before this attempt, '' when there was no record: what `revert` restores
 * st      1 when the settle time of earlier ambiguous calls was over when this attempt was opened:
 *         only then does a refusal prove absence
 * term    the leader's term in which it was opened
 * n       number of attempts
 * since   time of the first attempt, Unix ms by Redis' clock
 * code    gRPC code of the last attempt, or a word of forget.ts
 * key     job key, JSON
 * req, skel, secret, seal  the stored request; see RequestTexts
 * handle  the volume's handle, in `deleting` and `gone`
 * ans     the driver's answer, JSON, while only the PV write is missing
 *
 * Argument `owner` is the run that calls; `id` is the record's id. */

/* The states of a volume record, that is of what was asked of the driver for one volume. Without a
 * record nothing was asked, or it is proven that no volume exists: a creation or a deletion may be
 * opened. Only the owner of a record writes to it. An owner whose ownership has ended is replaced
 * by the run that opens the record next. */
export const RECORD_STATES = [
  /** A CreateVolume was or is being sent, and the record has its request. The owner changes the
   * state: to `stored` when the PV is written, to `suspect` or no record when the driver refuses,
   * and to the state before the attempt when nothing was sent. */
  'creating',
  /** The driver refused, but an earlier call of unknown end may still create the volume. A run that
   * sends the request again changes the state to `creating`. */
  'suspect',
  /** The PV is written. A run that reads the PV Released changes the state to `deleting`. One that
   * has to send the creation again (record rule 5, or the PV was removed) changes it to `creating`.
   * An unambiguous record expires after a day. */
  'stored',
  /** A DeleteVolume was or is being sent. The owner changes the state: to `gone` when the driver
   * has deleted the volume or the PV has vanished, to `stored` when the PV is to be kept, and to
   * the state before the attempt when nothing was sent. */
  'deleting',
  /** The volume is deleted, and a creation for this id is refused until no call that was begun
   * before can arrive any more: for an ownership and the settle time. Expires after a day. */
  'gone',
] as const;

export type RecordState = (typeof RECORD_STATES)[number];

/** Keys of a script that leaves or closes a record. */
export const RECORD_KEYS = ['recordKey', 'openKey', 'dataEpochKey', 'gatewayKey'] as const;
/** Keys of a script that opens a record. */
export const OPENING_KEYS = [...RECORD_KEYS, 'countKey', 'begunKey'] as const;
export type RecordKey = (typeof OPENING_KEYS)[number];

/** Seconds after which Redis forgets what is only remembered: a day. */
export const REMEMBERED_S = 86_400;

/** Lua: answers `lost` to a run that does not own the record any more. */
export const REQUIRE_OWNER = `
if redis.call('HGET', recordKey, 'owner') ~= owner then return {'lost'} end
`;

/** Lua: reads the record into state, amb and n. Answers `busy` while another owner is live (record
 * rule 1). If the last owner's ownership ended before it closed the record, the end of its call is
 * unknown: a creation becomes ambiguous (record rule 2). `isRepeated`: this owner has opened the
 * record already and the answer did not reach it, since the client sends a command again whose
 * answer was lost with the connection. */
export const TAKE_OVER = `
local state, lastOwner, untilMs, amb, n =
  unpack(redis.call('HMGET', recordKey, 'state', 'owner', 'until', 'amb', 'n'))
untilMs, amb, n = tonumber(untilMs or 0), amb or '0', tonumber(n or 0)
local isRepeated = lastOwner == owner
if lastOwner and lastOwner ~= '' and not isRepeated then
  if untilMs > now then return {'busy', 'waitMs', untilMs - now, 'state', state} end
  if state == 'creating' then
    amb = '1'
    redis.call('HSET', recordKey, 'amb', '1', 'call', untilMs)
  elseif state == 'deleting' then
    redis.call('HSET', recordKey, 'call', untilMs)
  end
end
`;

/* The opening count: how many records one process has opened, kept in Redis by the same scripts
 * that open them (record rule 8). Only that process advances it, so a count that is lower than
 * Redis has told the process shows that Redis went back to an earlier state and lost an opening of
 * this process: a failover to a replica that lagged behind, or a restart without the last writes.
 * The count expires after a day without the process.
 *
 * The process that finds a loss withdraws the confirmation of Redis' data, unless somebody has
 * found it already. Nothing is opened then until the leader has begun a new data epoch (record
 * rule 6).
 *
 * Arguments
 * confirmed    the highest count that Redis has told this process
 * countedIn    the data epoch in which that was
 * processName  shown to operators */

/** Seconds after which the count of a process that has ended expires: a day. */
const EXPIRES_S = 86_400;

export const COUNT_ARGS = { confirmed: 'number', countedIn: 'text', processName: 'text' } as const;

/** Fields of an answer that advanced the count. */
export const COUNTED = { count: 'number' } as const;

/** The answer of NOTICE_LOSS. */
export const WENT_BACK = { 'went-back': COUNTED } as const;

/** Lua: answers `went-back` where Redis has lost an opening of this process. Defines countOpening,
 * which advances the count and returns it. */
export const NOTICE_LOSS = noticeLoss("redis.call('GET', countKey)");

/** Lua: the same, and keeps the count from expiring. */
export const NOTICE_LOSS_AND_KEEP = noticeLoss(`redis.call('GETEX', countKey, 'EX', ${EXPIRES_S})`);

function noticeLoss(readCount: string): string {
  return `
local counted = tonumber(${readCount} or 0)
if counted < confirmed then
  if redis.call('HGET', dataEpochKey, 'epoch') == countedIn then
    redis.call('HDEL', dataEpochKey, 'epoch')
    redis.call('HSET', dataEpochKey, 'withdrawnBy', processName)
  end
  return {'went-back', 'count', counted}
end
local function countOpening()
  redis.call('SET', countKey, counted + 1, 'EX', ${EXPIRES_S})
  return counted + 1
end
`;
}

/* Soft state: the data of Redis ends with the process, and the finalizer of a claim is the durable
 * trace of its creation (record rule 10). So a loss concerns only the claims that had the finalizer
 * when they were read: a call may be at work for them. The others wait for nothing.
 *
 * Argument `trace`
 * records    no soft state: the records are the trace
 * finalizer  no soft state, and the claim had our finalizer: where it has no record, one with soft
 *            state may have called the driver
 * none       soft state, and no call was sent for this object before this process began
 * claim      soft state, and the claim had our finalizer: a process before this one may have called
 *            the driver, unless begunKey names the claim */

export const TRACES = ['records', 'finalizer', 'none', 'claim'] as const;

/** Lua: what every script that opens a record checks first. Expects the arguments of OPENING_ARGS.
 * Sets what TAKE_OVER and RECORD_NOW set, and dataEpoch, quarantineUntil (0 for an object that
 * the loss does not concern), otherProvisioner, term, halt, lossSettledAt, activeEndpoint (''
 * where no leader has named a gateway), untilNew and previous, and defines countOpening and
 * answerOpened. Answers one of NOT_OPENED. */
export const BEGIN_OPENING = `${RECORD_NOW}${NOTICE_LOSS}
-- Record rule 6: Redis' data was confirmed, no quarantine is under way, and the run read its object
-- in this data epoch, and since a leader of ours began its term ('' = it read none).
local dataEpoch, quarantineUntil, otherProvisioner, term, drain = unpack(redis.call(
  'HMGET', dataEpochKey, 'epoch', 'quarantineUntil', 'foreign', 'term', 'drain'))
if not dataEpoch then return {'no-data-epoch'} end
local current = term and dataEpoch .. '.' .. term or dataEpoch
if seenDataEpoch ~= '' and seenDataEpoch ~= current then
  return {'stale', 'dataEpoch', current}
end
if not otherProvisioner and otherHolder ~= '' then otherProvisioner = otherHolder end
-- Record rule 9: why nothing is opened that is not open; nil where it may be.
local halt = drain and {'drained'}
  or otherProvisioner and {'other-leads', 'holder', otherProvisioner}
-- With soft state the other one knows nothing of our records, and finishes what is open itself.
local isSoftState = trace == 'none' or trace == 'claim'
if isSoftState and otherProvisioner then return halt end
quarantineUntil = tonumber(quarantineUntil or 0)
local forgetBegunInMs = quarantineUntil + settleMs - now
if trace == 'none' or trace == 'claim' and redis.call('HEXISTS', begunKey, id) == 1 then
  quarantineUntil = 0
end
if now < quarantineUntil then return {'quarantine', 'waitMs', quarantineUntil - now} end
local lossSettledAt = quarantineUntil + settleMs
-- Record rule 7: calls at the previous gateway have ended.
local activeEndpoint, openAt = unpack(redis.call('HMGET', gatewayKey, 'endpoint', 'openAt'))
activeEndpoint, openAt = activeEndpoint or '', tonumber(openAt or 0)
if now < openAt then return {'moved', 'waitMs', openAt - now} end
${TAKE_OVER}
local untilNew = now + ownMs
local previous = state and (state .. ' ' .. amb .. ' ' .. n) or ''
local function answerOpened()
  return {'opened', 'dataEpoch', dataEpoch, 'count', countOpening(), 'endpoint', activeEndpoint}
end
`;

/** Lua: answers `elsewhere` before a call of unknown end has settled at another gateway (record
 * rule 7).
 * @param isUnknown  Lua condition: the end of the last call is unknown
 * @param target     Lua expression: the gateway to call now, '' where none is named */
export const requireSameGateway = (isUnknown: string, target = 'activeEndpoint'): string => `
if ${target} ~= '' and ${isUnknown} then
  local lastEndpoint, call = unpack(redis.call('HMGET', recordKey, 'ep', 'call'))
  local waitMs = tonumber(call or 0) + settleMs - now
  if lastEndpoint and lastEndpoint ~= '' and lastEndpoint ~= ${target} and waitMs > 0 then
    return {'elsewhere', 'waitMs', waitMs, 'endpoint', lastEndpoint}
  end
end
`;

/** The arguments of a script that opens a record. `ownMs`: the ownership. `seenDataEpoch`: as it
 * was before the run read its object, with the term after a dot. `otherHolder`: the other
 * provisioner that holds the Lease as far as the process knows, '' for none. */
export const OPENING_ARGS = {
  owner: 'text',
  ownMs: 'number',
  settleMs: 'number',
  seenDataEpoch: 'text',
  otherHolder: 'text',
  trace: TRACES,
  id: 'text',
  job: 'text',
  ...COUNT_ARGS,
} as const;

/** Fields of the answer that a record was opened. */
export const OPENED = { dataEpoch: 'text', ...COUNTED } as const;

/** The answers of BEGIN_OPENING and requireSameGateway, and those by which record rule 9 refuses to
 * open what is not open: `other-leads`, another provisioner leads, and `drained`. */
export const NOT_OPENED = {
  ...WENT_BACK,
  'no-data-epoch': {},
  stale: { dataEpoch: 'text' },
  quarantine: { waitMs: 'number' },
  moved: { waitMs: 'number' },
  elsewhere: { waitMs: 'number', endpoint: 'text' },
  'other-leads': { holder: 'text' },
  drained: {},
  busy: { waitMs: 'number', state: RECORD_STATES },
} as const;
export type NotOpened = AnswerOf<typeof NOT_OPENED>;

/** The fields of RequestTexts. */
export const REQUEST = {
  request: 'text',
  pvTemplate: 'text',
  secret: 'text',
  endpoint: 'text',
  seal: 'text',
} as const;
