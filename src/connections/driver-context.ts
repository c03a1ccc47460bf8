import type { FlagTable } from '../runtime/flags.ts';
import type { ProcessContext } from '../runtime/process.ts';

/** What the parts of one driver are opened with. Where a process serves one driver, it is the
 * context of the process; where it serves several, each driver has flags, checks and closers of its
 * own, so that it can begin and end while the others go on. */
export type DriverContext<T extends FlagTable> = Pick<
  ProcessContext<T>,
  'flags' | 'env' | 'pid' | 'log' | 'metrics' | 'health' | 'closers' | 'stopping'
>;
