/* The volume record as the model sees it: each function is one script of
 * src/records/record-scripts.ts in other words. record-conformance.test.ts holds them against the
 * real scripts. Time is counted in ticks that are left, so equal situations are equal states. */

/** Rules of docs/leak-proof.md that can be taken out of the model, to see what they are for. */
export interface Rules {
  /** 1: one owner at a time, nothing created in `deleting` and `gone`, no deletion while a creation
   * is open. */
  readonly fence: boolean;
  /** 2: what an expired owner left is ambiguous. */
  readonly takeOver: boolean;
  /** Part of 2: an ownership ends by itself. */
  readonly ownershipEnds: boolean;
  /** 3: nothing is sent past the own deadline. */
  readonly deadline: boolean;
  /** 4: a refusal proves nothing while the record is ambiguous and not settled. */
  readonly suspicion: boolean;
  /** Part of 4: which moment has to be past the settle time, that of opening the attempt or that of
   * closing it. */
  readonly refusalCountsFrom: 'open' | 'close';
  /** 5: no deletion on an ambiguous record. */
  readonly resolve: boolean;
  /** Part of 6: a run that read its object before the emptying opens nothing after it. */
  readonly runsEndWithTheIncarnation: boolean;
  /** Part of 6: before a deletion is opened, workers that had left the creation open have seen that
   * it was closed. */
  readonly areRecordsRewrittenInTime: boolean;
  /** Part of 6: a worker that opens a record does not forget what it left open before the emptying.
   */
  readonly memoryIsKept: boolean;
  /** 6: an emptied Redis is closed, then ambiguous, and gets back what workers remember. */
  readonly emptied: boolean;
}

export const ALL_RULES: Rules = {
  fence: true,
  takeOver: true,
  ownershipEnds: true,
  deadline: true,
  suspicion: true,
  refusalCountsFrom: 'open',
  resolve: true,
  emptied: true,
  runsEndWithTheIncarnation: true,
  areRecordsRewrittenInTime: true,
  memoryIsKept: true,
};

/** How long things take, in ticks. The smallest numbers at which every order of events is possible
 * that real durations allow. */
export const SEND = 1;
export const CALL = 1;
export const SETTLE = 1;
export const OWN = SEND + CALL;

export type StateName = 'none' | 'creating' | 'suspect' | 'stored' | 'deleting' | 'gone';

export interface VolumeRecord {
  readonly state: StateName;
  /** 0: nobody. */
  readonly owner: number;
  /** Ticks to the end of the ownership and the settle time after it; SETTLE or less: the ownership
   * is over. 0 without owner. */
  readonly until: number;
  readonly ambiguous: boolean;
  /** Ticks until the last ambiguous call has settled. 0 while unambiguous. */
  readonly settleTicks: number;
  /** Whether it had settled when the attempt was opened: only what was sent after that is answered
   * by a driver that is at nothing else of ours. */
  readonly wasSettled: boolean;
  /** What `revert` goes back to. */
  readonly before: StateName;
  readonly beforeAmbiguous: boolean;
  /** Handle in the stored answer, 0 without. */
  readonly answer: number;
  readonly hasRequest: boolean;
  /** Forgotten after a day. */
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

/** What an emptied Redis still has to wait for. */
export interface Recovery {
  /** False from the emptying until the leader has noticed it. */
  readonly isConfirmed: boolean;
  /** Ticks to the end of the quarantine and the settle time after it; SETTLE or less: records may
   * be opened again. */
  readonly left: number;
}

export const NO_LOSS: Recovery = { isConfirmed: true, left: 0 };

export type OpenMode = 'plan' | 'existing' | 'again' | 'resolve';
/** The first word of a script's answer; `recovery`: closed for recovery. */
export type Word =
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
  readonly word: Word;
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

/** Fields that no script reads in this situation are zero: they must not make two states of one. */
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

const reply = (word: Word, record: VolumeRecord): Reply => ({ word, record: clearUnread(record) });

/** Undefined: somebody else is at it. */
function takeOver(record: VolumeRecord, { owner, rules }: Opening): VolumeRecord | undefined {
  if (record.owner === 0) return record;
  const isLive = record.until > SETTLE || !rules.ownershipEnds;
  if (record.owner !== owner && isLive) return rules.fence ? undefined : record;
  return record.state === 'creating' && rules.takeOver
    ? { ...record, ambiguous: true, settleTicks: record.until }
    : record;
}

/** A record that begins while calls from before the emptying may be at work is ambiguous. */
function newMark({ rules, recovery }: Opening): Pick<VolumeRecord, 'ambiguous' | 'settleTicks'> {
  const isAmbiguous = rules.emptied && recovery.left > 0;
  return { ambiguous: isAmbiguous, settleTicks: isAmbiguous ? recovery.left : 0 };
}

function isClosedForRecovery({ rules, recovery }: Opening): boolean {
  return rules.emptied && (!recovery.isConfirmed || recovery.left > SETTLE);
}

export function openCreate(found: VolumeRecord, mode: OpenMode, opening: Opening): Reply {
  if (isClosedForRecovery(opening)) return reply('recovery', found);
  const record = takeOver(found, opening);
  if (record === undefined) return reply('busy', found);
  const { owner, rules } = opening;
  const until = OWN + SETTLE;
  const isFenced = record.state === 'deleting' || record.state === 'gone';
  if (record.state === 'none' || (isFenced && !rules.fence)) {
    if (mode !== 'plan' && mode !== 'again') return reply('none', record);
    const begun = newMark(opening);
    const wasSettled = begun.settleTicks === 0;
    return reply('opened', {
      ...NO_RECORD,
      ...begun,
      wasSettled,
      state: 'creating',
      owner,
      until,
      hasRequest: true,
    });
  }
  if (isFenced) return reply('closed', record);
  let { hasRequest } = record;
  if (record.state === 'stored') {
    if (mode === 'again') hasRequest = true;
    else if (!(mode === 'resolve' && record.ambiguous && hasRequest))
      return reply('closed', record);
  }
  const before = { before: record.state, beforeAmbiguous: record.ambiguous };
  return reply('replay', {
    ...record,
    ...before,
    state: 'creating',
    owner,
    until,
    wasSettled: record.settleTicks === 0,
    hasRequest,
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

/** Only the owner may write. */
function asOwner(record: VolumeRecord, owner: number, change: Change): Reply {
  return record.owner === owner ? change(record) : { word: 'lost', record };
}

/** `isOwnAnswer`: our own call succeeded, which clears the mark; else the PV was only seen. */
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
    if (r.ambiguous && !isSettled && rules.suspicion)
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

/** A worker looks after what it left open, and after an emptying, once the leader has noticed it,
 * writes it again. `closed`: nothing is left to look after; `busy`: it is still open, or may be. */
export function rewriteLost(record: VolumeRecord, wasEmptied: boolean, recovery: Recovery): Reply {
  if (record.state === 'creating' || record.state === 'suspect') return reply('busy', record);
  if (record.state === 'none' && !recovery.isConfirmed) return reply('busy', record);
  if (record.state !== 'none' || !wasEmptied) return reply('closed', record);
  return reply('ok', {
    ...NO_RECORD,
    state: 'creating',
    ambiguous: true,
    settleTicks: OWN + SETTLE,
    hasRequest: true,
  });
}
