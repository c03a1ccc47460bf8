import type { WaitCondition } from '../rules/rule.ts';

/* New work: calls for volumes without an open record. It is halted while another provisioner leads
 * and while sutler is drained (record rule 9); keys that need it wait until it is allowed. It names
 * no object of the API server; the leading ingest tells its version to the wait watch. */

/** New work in wait conditions, by its only name. */
export const NEW_WORK = { resource: 'newwork', name: '*' } as const;

const HALTED = 'halted';

/** Until new work is allowed. */
export const UNTIL_NEW_WORK: readonly WaitCondition[] = [{ ...NEW_WORK, seen: HALTED }];

/** The version of new work. */
export function newWorkVersion(isAllowed: boolean): string {
  return isAllowed ? 'allowed' : HALTED;
}
