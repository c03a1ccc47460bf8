import type { CsiError } from '../csi/status.ts';
import type { Outcome } from '../queue/outcome.ts';

/** The outcome of a call that was not forwarded. Unavailable says that nothing would be, whatever
 * the key: no gateway answers, or it has no driver. */
export function notReached(error: CsiError): Outcome {
  return {
    kind: 'later',
    reason: error.message,
    ...(error.codeName === 'Unavailable' ? { isDriverDown: true } : {}),
  };
}
