import type { DriverConnections } from '../connections/connect-driver.ts';
import type { DriverContext } from '../driver-config/driver-context.ts';
import type { WorkerConnection } from '../queue/connections.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { RecordKeys } from '../records/record-seal.ts';
import type { WatchedFiles } from '../runtime/watched-files.ts';
import type { Caches } from './caches.ts';
import type { flags } from './flags.ts';

/** The context of one driver in jobs. */
export type Context = DriverContext<typeof flags>;

/** What all drivers of a jobs process share, beside its connections. */
export interface Shared {
  readonly workerConnection: WorkerConnection;
  readonly caches: Caches;
  /** What --record-key-file says; undefined without the flag. */
  readonly recordKeys: Pick<WatchedFiles<RecordKeys>, 'current'> | undefined;
}

/** What jobs' parts of one driver are made of. It is there once the driver is known. */
export interface Base {
  readonly context: Context;
  readonly connections: DriverConnections;
  readonly shared: Shared;
  readonly driver: DriverInfo;
  /** Name of this process, as the one that serves this driver, that no other one has. */
  readonly instance: string;
}
