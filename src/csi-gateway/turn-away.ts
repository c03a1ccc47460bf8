import type { Logger } from '../runtime/log.ts';
import type { GatewayMetrics, TurnAwayReason } from '../driver/metrics.ts';

/** Counts and logs a caller whose connection the gateway ends. */
export type TurnAway = (reason: TurnAwayReason, from: string | undefined, why: string) => void;

const WARN_INTERVAL_MS = 10_000;

/** @returns  logs at debug level only within 10 s after a warning, so that callers can't flood the
 *   log */
export function createTurnAway(metrics: GatewayMetrics, log: Logger): TurnAway {
  let warnedMs = -Infinity;
  return (reason, from, why) => {
    metrics.countTurnedAway(reason);
    const nowMs = performance.now();
    const isQuiet = nowMs - warnedMs < WARN_INTERVAL_MS;
    if (!isQuiet) warnedMs = nowMs;
    log[isQuiet ? 'debug' : 'warn']({ from, reason: why }, 'a caller was turned away');
  };
}
