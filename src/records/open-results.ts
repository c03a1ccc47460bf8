import type { VolumeAnswer } from '../volumes/persistent-volume.ts';
import { NOT_OPENED, type NotOpened } from './record-scripts.ts';
import type { VolumeRequest } from './stored-request.ts';

/** Nothing may be sent yet; explainNotOpened has the reasons. */
export interface NotYet {
  readonly kind: 'not-yet';
  readonly reason: string;
  readonly waitMs: number;
  /** No other record of the driver may be opened either. */
  readonly isForAll: boolean;
  /** No record of the driver that is not open may be opened (record rule 9): the run may end
   * without reading its object, and the key waits until new work is allowed again. */
  readonly isHalt: boolean;
}

/** Another run owns the record. */
type Busy = Extract<NotOpened, { readonly kind: 'busy' }>;

/** A stored request that is to be sent again. */
export interface Replay {
  readonly stored: VolumeRequest;
  /** A call may have had an effect that no answer told us of. */
  readonly ambiguous: boolean;
  /** Time until no such call is at work in the driver any more; 0 where none is. */
  readonly settlesInMs: number;
  /** Another provisioner leads, or may have led since the record was opened. */
  readonly isOfEarlierTerm: boolean;
  /** When the first call was to be sent, Unix ms. */
  readonly sinceMs: number;
  /** gRPC code of the last attempt, '' where it had none. */
  readonly lastCode: string;
  /** The driver's answer, when only the PV write is missing. */
  readonly answer: VolumeAnswer | undefined;
}

/** What became of opening a creation. */
export type OpenedCreate =
  /** There is no record, and none was asked for. */
  | { readonly kind: 'none' }
  /** The planned request may be sent. `endpoint`: the active gateway; absent where no leader has
   * named one. */
  | { readonly kind: 'opened'; readonly endpoint?: string }
  /** The stored request may be sent; its endpoint is the active gateway, where one is named. */
  | ({ readonly kind: 'replay' } & Replay)
  /** The stored request may not be sent: its seal or its content is wrong. The record is kept.
   * `reason`: what is wrong, and what an operator can do. */
  | { readonly kind: 'unusable'; readonly reason: string }
  /** There is nothing to create. `waitMs`: until a record that is `gone` is forgotten, else 0. */
  | {
      readonly kind: 'closed';
      readonly state: 'stored' | 'deleting' | 'gone';
      readonly waitMs: number;
    }
  | Busy
  | NotYet;

/** What became of opening a deletion. */
export type OpenedDelete =
  /** The DeleteVolume may be sent. `endpoint` as in OpenedCreate. */
  | { readonly kind: 'opened'; readonly endpoint?: string }
  /** The volume is deleted. */
  | { readonly kind: 'gone' }
  /** A creation is open, and has to end first. */
  | { readonly kind: 'creating' }
  /** An earlier creation of unknown end may still be at work in the driver. */
  | { readonly kind: 'settle'; readonly waitMs: number }
  | Busy
  | NotYet;

/** Whether a script's answer says that nothing was opened. */
export function isNotOpened(answer: { readonly kind: string }): answer is NotOpened {
  return answer.kind in NOT_OPENED;
}

/** The leader confirms Redis' data every second, and promotes what waits as soon as new work is
 * allowed: the last two are only for a key whose promotion was lost. Absent: at once. */
const WAIT_MS: Readonly<Partial<Record<NotOpened['kind'], number>>> = {
  'went-back': 500,
  'no-data-epoch': 500,
  'other-leads': 60_000,
  drained: 60_000,
};

/** The answers that every record of the driver gets. */
const FOR_ALL: ReadonlySet<NotOpened['kind']> = new Set(['no-data-epoch', 'quarantine', 'moved']);

/** Adds the reason, for people to read, to an answer that nothing was opened.
 * @param isSoftState  a loss concerns only some records */
export function explainNotOpened(answer: NotOpened, isSoftState = false): NotYet | Busy {
  if (answer.kind === 'busy') return answer;
  const { kind } = answer;
  const isOfThisClaim = kind === 'quarantine' && isSoftState;
  return {
    kind: 'not-yet',
    reason: isOfThisClaim ? MAY_BE_AT_WORK : whyNotOpened(answer),
    waitMs: 'waitMs' in answer ? answer.waitMs : (WAIT_MS[kind] ?? 0),
    isForAll: FOR_ALL.has(kind) && !isOfThisClaim,
    isHalt: kind === 'other-leads' || kind === 'drained',
  };
}

const MAY_BE_AT_WORK =
  'its creation was begun before this process started; waiting until earlier calls have ended';

function whyNotOpened(answer: Exclude<NotOpened, Busy>): string {
  switch (answer.kind) {
    case 'went-back':
      return 'Redis lost its last writes; waiting for the leader';
    case 'no-data-epoch':
      return 'no leading ingest has confirmed Redis’ data yet (its /readyz says why)';
    case 'stale':
      return 'Redis’ data changed since the object was read; the object is read again';
    case 'quarantine':
      return 'Redis lost its data; waiting until earlier calls have ended';
    case 'moved':
      return 'another gateway has just become the active one; calls at the previous one must end first';
    case 'elsewhere':
      return (
        `a call may still be at work behind ${answer.endpoint}, ` +
        'another gateway than the one to call now'
      );
    case 'other-leads':
      return `${answer.holder} holds the driver’s Lease; sutler only finishes what is open`;
    case 'drained':
      return 'sutler is drained and only finishes what is open (sutler drain --undo ends that)';
  }
}
