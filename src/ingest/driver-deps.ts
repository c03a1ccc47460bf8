import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { Listeners } from '../runtime/listeners.ts';
import type { flags } from './flags.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { ObjectSource } from './objects/object-source.ts';
import type { ProvisioningPause } from './provisioning-pause.ts';

/** The context of one driver in ingest. */
export type Context = DriverContext<typeof flags>;

/** What exists once the driver is known. */
export interface DriverBase {
  readonly context: Context;
  readonly connections: DriverConnections;
  readonly driver: DriverInfo;
  /** The driver's place in Redis. */
  readonly place: RedisPlace;
  /** The place of its Lease and its journal. */
  readonly journal: JournalPlace;
  readonly source: ObjectSource;
  /** Set if jobs runs in this process and Redis is its own. */
  readonly ownLeader: OwnLeader | undefined;
}

/** What the parts of one driver in ingest share. */
export interface DriverDeps extends DriverBase {
  readonly queue: LeaderOnlyQueue;
  readonly isLeading: () => boolean;
  readonly pause: ProvisioningPause;
  readonly events: EventRecorder;
  /** Notified when a class has changed. */
  readonly classChanges: Listeners<void>;
}
