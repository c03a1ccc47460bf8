import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { Listeners } from '../runtime/listeners.ts';
import type { flags } from './flags.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { ProvisioningPause } from './provisioning-pause.ts';

/** The context of one driver in ingest. */
export type Context = DriverContext<typeof flags>;

/** The driver's Lease. */
export interface DriverLease {
  readonly namespace: string;
  readonly name: string;
}

/** What ingest's parts of one driver are made of. It is there once the driver is known. */
export interface DriverDeps {
  readonly context: Context;
  readonly connections: DriverConnections;
  readonly driver: DriverInfo;
  readonly lease: DriverLease;
  readonly queue: LeaderOnlyQueue;
  readonly pause: ProvisioningPause;
  readonly events: EventRecorder;
  /** Notified when a class has changed. */
  readonly classChanges: Listeners<void>;
  /** Set where jobs is the same process, and Redis its own. */
  readonly ownLeader: OwnLeader | undefined;
}
