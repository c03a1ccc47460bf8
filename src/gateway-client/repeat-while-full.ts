// Repeats calls that a gateway had no room for. Builds on pool.ts.
import { CsiError } from '../csi/status.ts';
import type { Clock } from '../runtime/clock.ts';
import type { ControllerCalls, ControllerCallSettings } from './pool.ts';

/** Least time between the beginnings of two attempts at a call, on average. A gateway that let the
 * call wait has used it up, so only a call that was refused at once pauses. */
const REPEAT_MS = 500;
/** With less time until its `notAfterMs` a call is not sent again: it might be refused for being
 * late, and such a refusal looks like that of a second call for its volume. */
const LEAST_TIME_MS = 100;

/** Sends a call again as long as its gateway answers that it is full, until the call's `notAfterMs`
 * or until `stopping` aborts. So only the call waits, with its volume record open, and not the
 * queue. A call without `notAfterMs` is not repeated.
 * @param random uniform in [0, 1) */
export function repeatWhileFull(
  calls: ControllerCalls,
  { clock, random }: { readonly clock: Clock; readonly random: () => number },
): ControllerCalls {
  const repeat = async <T>(
    { notAfterMs = 0, stopping }: ControllerCallSettings,
    send: () => Promise<T>,
  ): Promise<T> => {
    for (;;) {
      const startedMs = clock.nowMs();
      try {
        return await send();
      } catch (error) {
        const nowMs = clock.nowMs();
        const nextMs = Math.max(nowMs, startedMs + REPEAT_MS * (0.5 + random()));
        const isFull = error instanceof CsiError && error.isGatewayFull;
        if (!isFull || nextMs + LEAST_TIME_MS > notAfterMs) throw error;
        await clock.sleep(nextMs - nowMs, stopping);
        if (stopping?.aborted === true) throw error;
      }
    }
  };
  return {
    createVolume: (request, settings) =>
      repeat(settings, () => calls.createVolume(request, settings)),
    deleteVolume: (request, settings) =>
      repeat(settings, () => calls.deleteVolume(request, settings)),
  };
}
