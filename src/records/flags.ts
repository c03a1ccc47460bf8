import { defineFlags, perDriver } from '../runtime/flags.ts';

/** How long a volume record belongs to one attempt. ingest and jobs need the same value. */
export const recordFlags = perDriver({
  'write-allowance': {
    type: 'durationMs',
    default: '30s',
    min: '1s',
    help:
      'How long a run owns its volume record beyond --timeout: time to send the call, and to ' +
      'write the PersistentVolume after it. No other run takes the volume up earlier.',
  },
});

/** The keys of record-seal.ts. */
export const recordKeyFlags = defineFlags({
  'record-key-file': {
    type: 'string',
    default: '',
    help:
      'File of the keys by which jobs seal volume records in Redis, and ingest the copies of ' +
      'claims in the queue, one a line, the one to seal with first; what has another seal is not ' +
      'used. The line "unsealed" accepts what has none. It is read again when it changes. Without ' +
      'it at ingest, jobs with such a file read each claim.',
  },
});

interface Timing {
  readonly timeoutMs: number;
  readonly writeAllowanceMs: number;
}

/** How long an attempt owns its record: the duration of the call, and the time to write the PV. It
 * is also the longest time between opening a record and sending its call. */
export function ownershipMs({ timeoutMs, writeAllowanceMs }: Timing): number {
  return timeoutMs + writeAllowanceMs;
}

/** Workers check every 2 s what they left open. */
const REWRITING_MS = 5_000;

/** How long nothing is opened after a loss of Redis' data: until every attempt from before has
 * ended, and workers have written again what they left open. */
export function quarantineMs(timing: Timing): number {
  return ownershipMs(timing) + REWRITING_MS;
}
