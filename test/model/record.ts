/* The model of the volume record: each function is one script of src/records, in TypeScript.
 * record-conformance.test.ts compares them with the real scripts. Time is counted in ticks that are
 * left, so that equal situations are equal states. */
import type { RecordState } from '#src/records/record-scripts.ts';

/** The record rules of docs/invariants.md, which can be taken out of the model one by one to show
 * what each prevents. */
export interface Rules {
  /** Record rule 1: one owner at a time, no creation in `deleting` and `gone`, no deletion while a
   * creation is open. */
  readonly fence: boolean;
  /** Record rule 2: a record whose owner was replaced is ambiguous. */
  readonly takeOver: boolean;
  /** Part of record rule 2: an ownership ends by itself. */
  readonly ownershipEnds: boolean;
  /** Record rule 3: a run sends nothing after its deadline. */
  readonly deadline: boolean;
  /** Record rule 4: a refusal proves nothing before the settle time of an ambiguous call. */
  readonly suspect: boolean;
  /** Part of record rule 4: whether the attempt has to be opened, or only closed, after the settle
   * time. */
  readonly refusalCountsFrom: 'open' | 'close';
  /** Record rule 5: a PV that was only seen closes no ambiguous record before the settle time. */
  readonly resolve: boolean;
  /** Part of record rule 5: a deletion also waits until the settle time of the last ambiguous call
   * is over, whatever an own success has shown since. */
  readonly deletionAwaitsLateCalls: boolean;
  /** Part of record rule 6: a run that read its object before the loss opens nothing after it. */
  readonly runsEndWithTheDataEpoch: boolean;
  /** Part of record rule 6: before a deletion is opened, workers that had left the creation open
   * have seen that it was closed. */
  readonly areRecordsRewrittenInTime: boolean;
  /** Part of record rule 6: a worker that opens a record still remembers what it left open before
   * the loss. */
  readonly memoryIsKept: boolean;
  /** Record rule 8: Redis counts the openings of each process, so a process notices when Redis lost
   * one of them. */
  readonly openingsAreCounted: boolean;
  /** Record rule 9: while another provisioner leads nothing is opened that is not open. */
  readonly otherLeaderHalts: boolean;
  /** Part of record rule 9: a run that read its object before a leader of ours began its term opens
   * nothing after that. */
  readonly runsEndWithTheTerm: boolean;
  /** Part of record rule 9: a PV that was only seen closes no record that was open while another
   * provisioner led. */
  readonly seenIsNotEnoughAfterOther: boolean;
  /** Record rule 6: after a loss nothing is opened at first, then records begin ambiguous, and
   * workers write again what they remember. */
  readonly lostData: boolean;
}

export const ALL_RULES: Rules = {
  fence: true,
  takeOver: true,
  ownershipEnds: true,
  deadline: true,
  suspect: true,
  refusalCountsFrom: 'open',
  resolve: true,
  deletionAwaitsLateCalls: true,
  lostData: true,
  runsEndWithTheDataEpoch: true,
  areRecordsRewrittenInTime: true,
  memoryIsKept: true,
  openingsAreCounted: true,
  otherLeaderHalts: true,
  runsEndWithTheTerm: true,
  seenIsNotEnoughAfterOther: true,
};

/** Durations in ticks: the smallest numbers that allow every order of events that real durations
 * allow. */
export const SEND = 1;
export const CALL = 1;
export const SETTLE = 1;
export const OWN = SEND + CALL;

export type StateName = 'none' | RecordState;

export interface VolumeRecord {
  readonly state: StateName;
  /** 0: none. */
  readonly owner: number;
  /** Ticks to the end of the settle time after the ownership; SETTLE or less: the ownership has
   * ended. 0 without owner. */
  readonly until: number;
  readonly ambiguous: boolean;
  /** Ticks to the end of the settle time of the last call of unknown end. */
  readonly settleTicks: number;
  /** Whether that settle time was over when the attempt was opened: only then is no earlier call at
   * work while the driver answers. */
  readonly wasSettled: boolean;
  /** What `revert` goes back to. */
  readonly before: StateName;
  readonly beforeAmbiguous: boolean;
  /** Handle in the stored answer, 0 without; in `deleting` and `gone`: handle in the PV. */
  readonly answer: number;
  readonly hasRequest: boolean;
  /** It was open while another provisioner led. */
  readonly isOfEarlierTerm: boolean;
  /** Expires after a day. */
  readonly expires: boolean;
}

export const NO_RECORD: VolumeRecord = {
  state: 'none',
  owner: 0,
  until: 0,
  ambiguous: false,
  settleTicks: 0,
  wasSettled: false,
  before: 'none',
  beforeAmbiguous: false,
  answer: 0,
  hasRequest: false,
  isOfEarlierTerm: false,
  expires: false,
};

/** How far Redis has recovered from a loss of its data. */
export interface Recovery {
  /** False from the loss until the leader has begun a new data epoch. */
  readonly isConfirmed: boolean;
  /** Ticks to the end of the settle time after the quarantine; SETTLE or less: records may be
   * opened again. */
  readonly left: number;
}

export const NO_LOSS: Recovery = { isConfirmed: true, left: 0 };

export type OpenMode = 'plan' | 'existing' | 'again';
/** The kind of a script's answer; `recovery`: nothing may be opened after a loss;
 * `halt`: nothing that is not open may be. */
export type ReplyKind =
  | 'none'
  | 'opened'
  | 'replay'
  | 'busy'
  | 'closed'
  | 'recovery'
  | 'lost'
  | 'ok'
  | 'removed'
  | 'suspect'
  | 'creating'
  | 'settle'
  | 'gone'
  | 'halt';

export interface Reply {
  readonly kind: ReplyKind;
  readonly record: VolumeRecord;
}

export interface Opening {
  readonly owner: number;
  readonly rules: Rules;
  readonly recovery: Recovery;
  /** Another provisioner leads, or sutler is drained. */
  readonly isHalted: boolean;
}

export function isOpen(record: VolumeRecord): boolean {
  return isCreation(record) || record.state === 'deleting';
}

/** A creation is open. */
export function isCreation({ state }: VolumeRecord): boolean {
  return state === 'creating' || state === 'suspect';
}

/** One tick passes. */
export function age(record: VolumeRecord): VolumeRecord {
  if (record.until === 0 && record.settleTicks === 0) return record;
  return {
    ...record,
    until: Math.max(0, record.until - 1),
    settleTicks: Math.max(0, record.settleTicks - 1),
  };
}

function mayBeCreated(record: VolumeRecord): boolean {
  return isCreation(record) || record.state === 'stored';
}

/** Clears the fields that no script reads in this situation, so that equal situations are equal
 * states. */
function clearUnread(record: VolumeRecord): VolumeRecord {
  const isOwned = record.owner !== 0;
  return {
    ...record,
    until: isOwned ? record.until : 0,
    settleTicks: mayBeCreated(record) ? record.settleTicks : 0,
    wasSettled: isOwned && record.ambiguous && record.wasSettled,
    before: isOwned ? record.before : 'none',
    beforeAmbiguous: isOwned && record.beforeAmbiguous,
  };
}

const reply = (kind: ReplyKind, record: VolumeRecord): Reply => ({
  kind,
  record: clearUnread(record),
});

/** @returns undefined while another owner is live */
function takeOver(record: VolumeRecord, { owner, rules }: Opening): VolumeRecord | undefined {
  // Its own opening, sent again because the answer was lost, changes nothing.
  if (record.owner === 0 || record.owner === owner) return record;
  const isLive = record.until > SETTLE || !rules.ownershipEnds;
  if (isLive) return rules.fence ? undefined : record;
  return record.state === 'creating' && rules.takeOver
    ? { ...record, ambiguous: true, settleTicks: record.until }
    : record;
}

/** Ticks to the end of the settle time of calls from before a loss, as a record sees it that
 * outlived the loss. */
function lossTicks({ rules, recovery }: Opening): number {
  return rules.lostData ? recovery.left : 0;
}

/** Whether a new record is ambiguous: calls from before a loss may still be at work. */
function newMark({ rules, recovery }: Opening): Pick<VolumeRecord, 'ambiguous' | 'settleTicks'> {
  const isAmbiguous = rules.lostData && recovery.left > 0;
  return { ambiguous: isAmbiguous, settleTicks: isAmbiguous ? recovery.left : 0 };
}

function isClosedForRecovery({ rules, recovery }: Opening): boolean {
  return rules.lostData && (!recovery.isConfirmed || recovery.left > SETTLE);
}

export function openCreate(found: VolumeRecord, mode: OpenMode, opening: Opening): Reply {
  if (isClosedForRecovery(opening)) return reply('recovery', found);
  if (found.state === 'creating' && found.owner === opening.owner)
    return reply(found.before === 'none' ? 'opened' : 'replay', found);
  const record = takeOver(found, opening);
  if (record === undefined) return reply('busy', found);
  const isFenced = record.state === 'deleting' || record.state === 'gone';
  if (isFenced && opening.rules.fence) return reply('closed', record);
  return record.state === 'none' || isFenced
    ? openNew(record, mode, opening)
    : openAgain(record, mode, opening);
}

function openNew(record: VolumeRecord, mode: OpenMode, opening: Opening): Reply {
  if (mode !== 'plan' && mode !== 'again') return reply('none', record);
  if (opening.isHalted) return reply('halt', record);
  const mark = newMark(opening);
  return reply('opened', {
    ...NO_RECORD,
    ...mark,
    wasSettled: mark.settleTicks === 0,
    state: 'creating',
    owner: opening.owner,
    until: OWN + SETTLE,
    hasRequest: true,
  });
}

function openAgain(record: VolumeRecord, mode: OpenMode, opening: Opening): Reply {
  if (record.state === 'stored' && mode !== 'again') return reply('closed', record);
  if (record.state === 'stored' && opening.isHalted) return reply('halt', record);
  const settleTicks = Math.max(record.settleTicks, lossTicks(opening));
  return reply('replay', {
    ...record,
    settleTicks,
    before: record.state,
    beforeAmbiguous: record.ambiguous,
    state: 'creating',
    owner: opening.owner,
    until: OWN + SETTLE,
    wasSettled: settleTicks === 0,
    hasRequest: record.hasRequest || record.state === 'stored',
    expires: false,
  });
}

/** `gone` names another volume then. */
function beforeDeletion({ state }: VolumeRecord): StateName {
  return state === 'gone' ? 'none' : state;
}

/** @param handle  of the PV that is to be deleted */
export function openDelete(found: VolumeRecord, opening: Opening, handle: number): Reply {
  if (isClosedForRecovery(opening)) return reply('recovery', found);
  if (found.state === 'deleting' && found.owner === opening.owner) return reply('opened', found);
  const record = takeOver(found, opening);
  if (record === undefined) return reply('busy', found);
  if (isCreation(record) && opening.rules.fence) return reply('creating', record);
  if (record.state === 'gone' && record.answer === handle) return reply('gone', record);
  if (record.state !== 'deleting') {
    if (opening.isHalted) return reply('halt', record);
    if (settlesLater(record, opening)) return reply('settle', found);
  }
  const before = { before: beforeDeletion(found), beforeAmbiguous: found.ambiguous };
  return reply('opened', {
    ...record,
    ...before,
    state: 'deleting',
    owner: opening.owner,
    until: OWN + SETTLE,
    ambiguous: false,
    answer: handle,
    expires: false,
  });
}

/** Whether an earlier creation may still be at work in the driver. */
function settlesLater({ state, settleTicks }: VolumeRecord, opening: Opening): boolean {
  const isAwaited = opening.rules.deletionAwaitsLateCalls && state === 'stored';
  return lossTicks(opening) > 0 || (isAwaited && settleTicks > 0);
}

type Change = (record: VolumeRecord) => Reply;

/** Makes a change that only the owner may make. */
function asOwner(record: VolumeRecord, owner: number, change: Change): Reply {
  return record.owner === owner ? change(record) : { kind: 'lost', record };
}

export function closeStored(record: VolumeRecord, owner: number): Reply {
  return asOwner(record, owner, (r) => reply('ok', stored(r)));
}

function stored({ settleTicks }: VolumeRecord): VolumeRecord {
  return { ...NO_RECORD, state: 'stored', settleTicks, expires: true };
}

export function closeRefused(record: VolumeRecord, owner: number, rules: Rules): Reply {
  return asOwner(record, owner, (r) => {
    const isSettled = rules.refusalCountsFrom === 'open' ? r.wasSettled : r.settleTicks === 0;
    if (r.ambiguous && !isSettled && rules.suspect)
      return reply('suspect', { ...r, state: 'suspect', owner: 0 });
    const wasStored = r.before === 'stored';
    return reply('removed', wasStored ? stored(r) : NO_RECORD);
  });
}

export function leaveAmbiguous(record: VolumeRecord, owner: number): Reply {
  return asOwner(record, owner, (r) =>
    reply('ok', {
      ...r,
      state: 'creating',
      owner: 0,
      ambiguous: true,
      answer: 0,
      settleTicks: Math.max(r.settleTicks, r.until),
    }),
  );
}

export function leaveAnswered(record: VolumeRecord, owner: number, answer: number): Reply {
  return asOwner(record, owner, (r) =>
    reply('ok', { ...r, state: 'creating', owner: 0, ambiguous: false, answer }),
  );
}

export function revert(record: VolumeRecord, owner: number): Reply {
  return asOwner(record, owner, (r) => {
    if (r.before === 'none') return reply('ok', NO_RECORD);
    const expires = r.expires || (r.before === 'stored' && !r.beforeAmbiguous);
    const answer = r.state === 'deleting' && r.before !== 'deleting' ? 0 : r.answer;
    return reply('ok', {
      ...r,
      state: r.before,
      ambiguous: r.beforeAmbiguous,
      owner: 0,
      expires,
      answer,
    });
  });
}

export function closeGone(record: VolumeRecord, owner: number): Reply {
  return asOwner(record, owner, ({ answer }) =>
    reply('ok', { ...NO_RECORD, state: 'gone', answer, expires: true }),
  );
}

export function leaveDeleting(record: VolumeRecord, owner: number): Reply {
  return asOwner(record, owner, (r) => reply('ok', { ...r, owner: 0 }));
}

export function endDeletion(found: VolumeRecord, opening: Opening, to: 'stored' | 'gone'): Reply {
  const record = takeOver(found, opening);
  if (record === undefined) return reply('busy', found);
  if (record.state !== 'deleting') return reply('none', record);
  return reply('ok', {
    ...record,
    state: to,
    answer: to === 'gone' ? record.answer : 0,
    owner: 0,
    before: 'none',
    beforeAmbiguous: false,
    expires: true,
  });
}

/** What a worker left open, and what it knows of a loss. */
export interface LeftOpen {
  /** Redis' data is of a later data epoch than the opening. */
  readonly isOfEarlier: boolean;
  /** Redis lost an opening of this worker, so no record that Redis has now tells how it ended. */
  readonly isLost: boolean;
}

/** A worker checks the creation that it left open, and writes it again where Redis lost it.
 * `closed`: another run closed it; `busy`: it is open, or a deletion is under way. */
export function rewriteLost(
  record: VolumeRecord,
  { isOfEarlier, isLost }: LeftOpen,
  { isConfirmed }: Recovery,
): Reply {
  if ((record.state === 'none' || isLost) && !isConfirmed) return reply('busy', record);
  if (record.state === 'none')
    return isOfEarlier ? reply('ok', REWRITTEN) : reply('closed', record);
  if (!isLost) return reply(isCreation(record) ? 'busy' : 'closed', record);
  // Without owner, so that a run that opened the record before the loss can't clear the mark.
  return record.state === 'deleting' ? reply('busy', record) : reply('ok', REWRITTEN);
}

const REWRITTEN: VolumeRecord = {
  ...NO_RECORD,
  state: 'creating',
  ambiguous: true,
  settleTicks: OWN + SETTLE,
  hasRequest: true,
};
