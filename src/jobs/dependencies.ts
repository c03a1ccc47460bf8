import type { CapacityHints } from '../capacity/hints.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { LeaseView } from '../election/lease-view.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { GatewayPool } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import type { JournalPlace } from '../journal/list-journal.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { ClassLimits } from '../queue/class-limit.ts';
import type { RedisLink } from '../redis/connection.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { DriverFacts } from '../volumes/driver-facts.ts';
import type { ProvisioningOptions } from '../volumes/flags.ts';
import type { VolumeIdentity } from '../volumes/handles.ts';
import type { Caches, DriverCaches } from './caches.ts';
import type { RefusedSizes } from './claim/refused-sizes.ts';
import type { flags } from './flags.ts';
import type { OperationCounts } from './operation-counts.ts';

/* What the runs of one driver's jobs work with, grouped by what it is for. build-dependencies.ts
 * makes it once for each driver; a run keeps nothing in it. Small functions take the part that they
 * need. */

export interface Dependencies {
  readonly cluster: Cluster;
  readonly driver: CsiDriver;
  readonly redis: RedisState;
  /** Whether the driver may be called now. */
  readonly lease: LeaseView;
  readonly journal: JournalPlace;
  /** The snapshots and claims that claims in the journal are created from. */
  readonly openSources: () => Promise<ReadonlySet<string>>;
  readonly settings: Settings;
  readonly reports: Reports;
  readonly clock: Clock;
}

/** The calls to the API server that runs make. */
export type Kube = Pick<KubeClient, 'get' | 'list' | 'create' | 'patch' | 'update' | 'delete'>;

/** Where events go. */
export type Events = Pick<EventRecorder, 'record'>;

/** The API server, and the objects that runs read from memory instead. */
export interface Cluster extends Pick<
  DriverCaches,
  'classOf' | 'classes' | 'attachedTo' | 'topology'
> {
  readonly kube: Kube;
  readonly events: Events;
  /** Lists all PVs, so that `sharersOf` knows for the next seconds. */
  readonly listVolumes: () => Promise<void>;
  /** A claim as ingest's watch in this process shows it, if that has brought something lately. */
  readonly freshClaim: OwnLeader['freshClaim'];
}

/** The CSI driver, directly or by its gateways. */
export interface CsiDriver {
  /** Name and capabilities as they are now. */
  readonly facts: () => DriverFacts;
  /** By the gateway that each call names. */
  readonly csi: Pick<GatewayPool, 'createVolume' | 'deleteVolume' | 'getCapacity'>;
  /** Deadline of one call (--timeout). */
  readonly timeoutMs: number;
  /** The gateway to call while no leader has named the active one: the only one, or '' if there are
   * several, which refuses the call. */
  readonly endpoint: string;
  readonly refusedSizes: RefusedSizes;
}

/** What sutler keeps in Redis about volumes. */
export interface RedisState {
  /** The limits of classes. */
  readonly classLimits: Pick<ClassLimits, 'look' | 'take' | 'end'>;
  /** The names of PVs that may have this handle, as ingest published them, or else as `listVolumes`
   * found them within the last seconds; undefined if neither did.
   * @throws RedisUnavailable */
  readonly sharersOf: (volume: VolumeIdentity) => Promise<readonly string[] | undefined>;
}

/** What the flags say about runs. */
export interface Settings {
  /** The flags that the rules of src/volumes/ read. */
  readonly options: ProvisioningOptions;
  /** D: for how long after a mark calls may be at work in the driver, and the run at its object. */
  readonly doubtMs: number;
  /** Longest delay after a failure (--retry-interval-max), which is also that after an infeasible
   * request. */
  readonly retryMaxMs: number;
  /** Whether a process that serves one node takes claims that bind at once
   * (--node-deployment-immediate-binding). */
  readonly bindsAtOnce: boolean;
}

/** What runs tell besides events. */
export interface Reports {
  readonly counts: OperationCounts;
  /** Tells ingest what to ask the driver's capacity of. */
  readonly capacity: CapacityHints;
  readonly log: Logger;
}

/** The context of one driver in jobs. */
export type JobsContext = DriverContext<typeof flags>;

/** What all drivers of a jobs process share, beside its connections. */
export interface SharedParts {
  /** Of all consumers of this process. */
  readonly workerLink: RedisLink;
  readonly caches: Caches;
  /** Set where ingest is the same process, and Redis its own. */
  readonly ownLeader?: OwnLeader | undefined;
}

/** What the parts of one driver in jobs are made of. It is there once the driver is known. */
export interface DriverDeps {
  readonly context: JobsContext;
  readonly connections: DriverConnections;
  readonly shared: SharedParts;
  readonly driver: DriverInfo;
  /** Name of this process, as the one that serves this driver, that no other one has. */
  readonly instance: string;
}
