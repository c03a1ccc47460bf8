import type { DriverConnections } from '../connections/connect-driver.ts';
import type { DriverContext } from '../connections/driver-context.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { flags } from './flags.ts';

/** The context of one driver in jobs. */
export type Context = DriverContext<typeof flags>;

/** What jobs' parts of one driver are made of. It is there once the driver is known. */
export interface Base {
  readonly context: Context;
  readonly connections: DriverConnections;
  readonly driver: DriverInfo;
  /** Name of this process that no other one has. */
  readonly instance: string;
}
