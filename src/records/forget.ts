import type { Redis } from 'ioredis';
import type { DriverPlace } from '../redis/key-prefix.ts';
import { type AnswerOf, defineNamedScript } from '../redis/named-script.ts';
import { forgottenKey, dataEpochKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import { RECORD_NOW } from './record-clock.ts';

const ANSWERS = {
  none: {},
  closed: { state: 'text' },
  busy: { waitMs: 'number' },
  forgotten: { state: 'text' },
} as const;

/** What became of the record: there was none, it is closed, an owner is live, or it was dropped. */
export type Forgotten = AnswerOf<typeof ANSWERS>;

/** An open record to no record, with a note in the log of forgotten records. Refuses while an owner
 * is live, because its call may create the volume at this moment. */
const forgetScript = defineNamedScript({
  keys: ['recordKey', 'openKey', 'logKey', 'dataEpochKey'],
  args: { id: 'text', note: 'text' },
  answers: ANSWERS,
  lua: `${RECORD_NOW}
local state, owner, untilMs = unpack(redis.call('HMGET', recordKey, 'state', 'owner', 'until'))
if not state then return {'none'} end
if state == 'stored' or state == 'gone' then return {'closed', 'state', state} end
local waitMs = (tonumber(untilMs) or 0) - now
if owner and owner ~= '' and waitMs > 0 then return {'busy', 'waitMs', waitMs} end
redis.call('DEL', recordKey)
redis.call('HDEL', openKey, id)
redis.call('LPUSH', logKey, note)
redis.call('LTRIM', logKey, 0, 999)
return {'forgotten', 'state', state}
`,
});

/** Who dropped something at an operator's request, why and when. */
export interface ForgetNote {
  readonly by: string;
  readonly why: string;
  readonly atMs: number;
}

interface RecordPlace extends DriverPlace {
  readonly id: string;
}

/** Drops an open record at an operator's request, although its volume may exist. Redis keeps the
 * last thousand notes of what was forgotten, by whom and why. */
export function forgetRecord(
  redis: Redis,
  { prefix, driver, id }: RecordPlace,
  note: ForgetNote,
): Promise<Forgotten> {
  const keys = {
    recordKey: volumeRecordKey(prefix, driver, id),
    openKey: openRecordsKey(prefix, driver),
    logKey: forgottenKey(prefix, driver),
    dataEpochKey: dataEpochKey(prefix, driver),
  };
  return forgetScript.run(redis, keys, { id, note: JSON.stringify({ id, ...note }) });
}

/** Adds a note that the PV of this name was removed at an operator's request, although its volume
 * may exist. */
export async function noteRemoval(
  redis: Redis,
  { prefix, driver, id }: RecordPlace,
  note: ForgetNote,
): Promise<void> {
  const key = forgottenKey(prefix, driver);
  await redis.lpush(key, JSON.stringify({ id, ...note }));
  await redis.ltrim(key, 0, 999);
}

/* Open records that only an operator can end. Each has a word in the place of its gRPC code, by
 * which audits tell them from others. */

/** The claim's PV names another volume than the one of the driver's answer. */
export const DUPLICATE_LEFT = 'DuplicateVolume';

/** Seal or content is wrong: jobs don't use the record. */
export const UNUSABLE_RECORD = 'UnusableRecord';

const EXPLANATIONS: ReadonlyMap<string, string> = new Map([
  [DUPLICATE_LEFT, 'the driver’s answer names another volume than the PersistentVolume'],
  [UNUSABLE_RECORD, 'jobs do not use this record, because its seal or its content is wrong'],
]);

/** What is wrong with such a record and which command ends it; undefined for other records.
 * @param lastCode  of the record */
export function explainForOperator(
  id: string,
  driver: string,
  lastCode: string,
): string | undefined {
  const explanation = EXPLANATIONS.get(lastCode);
  return explanation && `${explanation}; see the events of its claim; ${forgetCommand(id, driver)}`;
}

/** The command that drops a record, as part of a sentence. */
export function forgetCommand(id: string, driver: string): string {
  return `then run: sutler forget ${id} --driver-name=${driver} --why=REASON`;
}
