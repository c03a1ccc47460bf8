import type { Connections } from '../connections/open-connections.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { flags } from './flags.ts';

/** The process context of jobs. */
export type Context = ProcessContext<typeof flags>;

/** What the parts of jobs are made of. It is there once the driver is known. */
export interface Base {
  readonly context: Context;
  readonly connections: Connections;
  readonly driver: DriverInfo;
  /** Name of this process that no other one has. */
  readonly instance: string;
}
