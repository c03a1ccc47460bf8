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
