import { isFields, parseJson } from '../runtime/json.ts';
import { decodeChanges, encodeChanges, type StatusChange } from './status.ts';

/** What is kept of a job that is done, for people. */
export interface JobResult {
  /** What its last run returned. */
  readonly note: string;
  /** How its runs before that ended, as RunStatus.history has it. */
  readonly changes: readonly StatusChange[];
}

/** What BullMQ stores as the result of a job: the note alone where its first run was done. */
export type StoredResult = string | null | Readonly<Record<'note' | 'changes', unknown>>;

export function encodeResult({ note, changes }: JobResult): StoredResult {
  if (changes.length > 0) return { note, changes: encodeChanges(changes) };
  return note === '' ? null : note;
}

/** @param text  JSON of what BullMQ has stored */
export function decodeResult(text: string): JobResult {
  const stored = parseJson(text);
  if (typeof stored === 'string') return { note: stored, changes: [] };
  if (!isFields(stored)) return { note: '', changes: [] };
  const { note, changes } = stored;
  return { note: typeof note === 'string' ? note : '', changes: decodeChanges(changes) };
}
