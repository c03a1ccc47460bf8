import { performance } from 'node:perf_hooks';
import type { Logger } from './log.ts';

/** With -v=6: logs a step that ends now: when it began, in ms of Unix time, and how long it took.
 * @param startedMs  what performance.now() was when the step began
 * @param fields     more fields of the line */
export function traceStep(log: Logger, step: string, startedMs: number, fields: object = {}): void {
  if (!log.isLevelEnabled('trace')) return;
  const atMs = performance.timeOrigin + startedMs;
  log.trace({ step, ...fields, atMs, tookMs: performance.now() - startedMs }, 'step ended');
}
