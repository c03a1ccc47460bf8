import type { Flags, FlagTable } from '../runtime/flags.ts';
import type { Listeners } from '../runtime/listeners.ts';
import type { ProcessContext } from '../runtime/process.ts';

/** What the parts of one driver are opened with. Where a process serves one driver, it is the
 * context of the process; where it serves several, each driver has flags, checks and closers of its
 * own, so that it can begin and end while the others go on. */
export interface DriverContext<T extends FlagTable> extends Pick<
  ProcessContext<T>,
  'flags' | 'env' | 'pid' | 'log' | 'metrics' | 'health' | 'closers' | 'stopping'
> {
  /** Tells of new values of the hot flags; absent where the flags can't change. */
  readonly flagChanges?: Pick<Listeners<Flags<T>>, 'subscribe'>;
}
