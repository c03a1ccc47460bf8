/* The model of the volume record: each function is one script of src/records, in TypeScript.
 * record-conformance.test.ts compares them with the real scripts. Time is counted in ticks that are
 * left, so that equal situations are equal states. */
import type { RecordState } from '#src/records/record-state.ts';

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
  /** Record rule 5: no deletion on an ambiguous record. */
  readonly resolve: boolean;
  /** Part of record rule 6: a run that read its object before the loss opens nothing after it. */
  readonly runsEndWithTheIncarnation: boolean;
  /** Part of record rule 6: before a deletion is opened, workers that had left the creation open
   * have seen that it was closed. */
  readonly areRecordsRewrittenInTime: boolean;
  /** Part of record rule 6: a worker that opens a record still remembers what it left open before
   * the loss. */
  readonly memoryIsKept: boolean;
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
  lostData: true,
  runsEndWithTheIncarnation: true,
  areRecordsRewrittenInTime: true,
  memoryIsKept: true,
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
  /** Ticks to the end of the last ambiguous call's settle time; 0 while unambiguous. */
  readonly settleTicks: number;
  /** Whether that settle time was over when the attempt was opened: only then is no earlier call at
   * work while the driver answers. */
  readonly wasSettled: boolean;
  /** What `revert` goes back to. */
  readonly before: StateName;
  readonly beforeAmbiguous: boolean;
  /** Handle in the stored answer, 0 without. */
  readonly answer: number;
  readonly hasRequest: boolean;
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
  expires: false,
};

/** How far Redis has recovered from a loss of its data. */
export interface Recovery {
  /** False from the loss until the leader has begun a new incarnation. */
  readonly isConfirmed: boolean;
  /** Ticks to the end of the settle time after the quarantine; SETTLE or less: records may be
   * opened again. */
  readonly left: number;
}

export const NO_LOSS: Recovery = { isConfirmed: true, left: 0 };

export type OpenMode = 'plan' | 'existing' | 'again' | 'resolve';
/** The kind of a script's answer; `recovery`: nothing may be opened after a loss. */
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
  | 'resolve'
  | 'settle'
  | 'gone';

export interface Reply {
  readonly kind: ReplyKind;
  readonly record: VolumeRecord;
}

export interface Opening {
  readonly owner: number;
  readonly rules: Rules;
  readonly recovery: Recovery;
}

export function isOpen(record: VolumeRecord): boolean {
  return record.state === 'creating' || record.state === 'suspect' || record.state === 'deleting';
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

/** Clears the fields that no script reads in this situation, so that equal situations are equal
 * states. */
function clearUnread(record: VolumeRecord): VolumeRecord {
  const isOwned = record.owner !== 0;
  const isMarked = record.ambiguous || (isOwned && record.beforeAmbiguous);
  return {
    ...record,
    until: isOwned ? record.until : 0,
    settleTicks: isMarked ? record.settleTicks : 0,
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
  if (record.owner === 0) return record;
  const isLive = record.until > SETTLE || !rules.ownershipEnds;
  if (record.owner !== owner && isLive) return rules.fence ? undefined : record;
  return record.state === 'creating' && rules.takeOver
    ? { ...record, ambiguous: true, settleTicks: record.until }
    : record;
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

function openAgain(record: VolumeRecord, mode: OpenMode, { owner }: Opening): Reply {
  const isResolvable = mode === 'resolve' && record.ambiguous && record.hasRequest;
  if (record.state === 'stored' && mode !== 'again' && !isResolvable)
    return reply('closed', record);
  return reply('replay', {
    ...record,
    before: record.state,
    beforeAmbiguous: record.ambiguous,
    state: 'creating',
    owner,
    until: OWN + SETTLE,
    wasSettled: record.settleTicks === 0,
    hasRequest: record.hasRequest || record.state === 'stored',
    expires: false,
  });
}

export function openDelete(found: VolumeRecord, opening: Opening): Reply {
  if (isClosedForRecovery(opening)) return reply('recovery', found);
  let record = takeOver(found, opening);
  if (record === undefined) return reply('busy', found);
  const { owner, rules } = opening;
  if ((record.state === 'creating' || record.state === 'suspect') && rules.fence)
    return reply('creating', record);
  if (record.state === 'gone') return reply('gone', record);
  if (record.state === 'none') record = { ...record, ...newMark(opening) };
  if (record.ambiguous && rules.resolve) {
    if (record.hasRequest) return reply('resolve', record);
    if (record.settleTicks > 0) return reply('settle', found);
  }
  const before = { before: found.state, beforeAmbiguous: found.ambiguous };
  return reply('opened', {
    ...record,
    ...before,
    state: 'deleting',
    owner,
    until: OWN + SETTLE,
    ambiguous: false,
    expires: false,
  });
}

type Change = (record: VolumeRecord) => Reply;

/** Makes a change that only the owner may make. */
function asOwner(record: VolumeRecord, owner: number, change: Change): Reply {
  return record.owner === owner ? change(record) : { kind: 'lost', record };
}

/** `isOwnAnswer`: our own call succeeded, so the record becomes unambiguous; else the PV was only
 * seen. */
export function closeStored(record: VolumeRecord, owner: number, isOwnAnswer: boolean): Reply {
  return asOwner(record, owner, (r) =>
    r.ambiguous && !isOwnAnswer
      ? reply('ok', { ...r, state: 'stored', owner: 0, before: 'none', beforeAmbiguous: false })
      : reply('ok', { ...NO_RECORD, state: 'stored', expires: true }),
  );
}

export function closeRefused(record: VolumeRecord, owner: number, rules: Rules): Reply {
  return asOwner(record, owner, (r) => {
    const isSettled = rules.refusalCountsFrom === 'open' ? r.wasSettled : r.settleTicks === 0;
    if (r.ambiguous && !isSettled && rules.suspect)
      return reply('suspect', { ...r, state: 'suspect', owner: 0 });
    const wasStored = r.before === 'stored';
    return reply(
      'removed',
      wasStored ? { ...NO_RECORD, state: 'stored', expires: true } : NO_RECORD,
    );
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
    return reply('ok', { ...r, state: r.before, ambiguous: r.beforeAmbiguous, owner: 0, expires });
  });
}

export function closeGone(record: VolumeRecord, owner: number): Reply {
  return asOwner(record, owner, () => reply('ok', { ...NO_RECORD, state: 'gone', expires: true }));
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
    owner: 0,
    before: 'none',
    beforeAmbiguous: false,
    expires: true,
  });
}

/** A worker rewrites what it left open and Redis has lost, once the leader has noticed the loss.
 * `closed`: another run closed it; `busy`: it is still open, or may be. */
export function rewriteLost(record: VolumeRecord, isLost: boolean, recovery: Recovery): Reply {
  if (record.state === 'creating' || record.state === 'suspect') return reply('busy', record);
  if (record.state === 'none' && !recovery.isConfirmed) return reply('busy', record);
  if (record.state !== 'none' || !isLost) return reply('closed', record);
  return reply('ok', {
    ...NO_RECORD,
    state: 'creating',
    ambiguous: true,
    settleTicks: OWN + SETTLE,
    hasRequest: true,
  });
}
