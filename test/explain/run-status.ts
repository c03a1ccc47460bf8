import type { RunStatus } from '#src/queue/status.ts';

export const NOW_MS = Date.UTC(2026, 0, 2);

/** How the one run of a key ended, for tests. */
export const status = (fields: Partial<RunStatus>): RunStatus => ({
  outcome: 'retry',
  count: 1,
  alike: 1,
  reason: '',
  atMs: NOW_MS,
  firstMs: NOW_MS,
  runs: 1,
  until: [],
  sinceMs: NOW_MS,
  isTold: true,
  ...fields,
});
