import type { CapacityHints } from '../capacity/hints.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { SoftState } from '../election/soft-state.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { ControllerCalls } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { NodeLocal } from '../node-local/open-node-local.ts';
import type { ClassTurns } from '../queue/class-turns.ts';
import type { WorkerConnection } from '../queue/connections.ts';
import type { VolumeNames } from '../records/names-in-use.ts';
import type { RecordKeys } from '../records/record-seal.ts';
import type { SharedHandles } from '../records/shared-handles.ts';
import type { VolumeRecords } from '../records/volume-record.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { WatchedFiles } from '../runtime/watched-files.ts';
import type { DriverFacts } from '../volumes/driver-facts.ts';
import type { ProvisioningOptions } from '../volumes/flags.ts';
import type { Caches, DriverCaches } from './caches.ts';
import type { ClaimCopyReader } from './claim/claim-copy.ts';
import type { flags } from './flags.ts';
import type { OperationCounts } from './operation-counts.ts';

/* What the runs of one driver's jobs work with, grouped by what it is for. build-dependencies.ts
 * makes it once for each driver; a run keeps nothing in it. Small functions take the part that they
 * need. */

export interface Dependencies {
  readonly cluster: Cluster;
  readonly driver: CsiDriver;
  readonly redis: RedisState;
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
}

/** The CSI driver, through its gateways. */
export interface CsiDriver {
  /** Name and capabilities as they are now. */
  readonly facts: () => DriverFacts;
  /** CreateVolume and DeleteVolume, through the gateway that each call names. */
  readonly csi: ControllerCalls;
  /** Deadline of one call (--timeout). */
  readonly timeoutMs: number;
  /** The gateway to call while no leader has named the active one: the only --gateway, or '' if
   * there are several, which refuses the call. */
  readonly endpoint: string;
  /** Set with --node-deployment. */
  readonly nodeLocal?: NodeLocal | undefined;
}

/** What sutler keeps in Redis about volumes. */
export interface RedisState {
  readonly records: VolumeRecords;
  /** Makes the name of an owner of records, unique to one attempt. */
  readonly newOwner: () => string;
  /** Which claim each shortened volume name is reserved for. */
  readonly names: Pick<VolumeNames, 'reserve' | 'release'>;
  readonly copies: Pick<ClaimCopyReader, 'claimOf'>;
  /** The turns of classes that limit how many volumes are created and deleted. */
  readonly turns: Pick<ClassTurns, 'take' | 'end'>;
  /** Reads from the open records the UIDs of the snapshots and claims that volumes are being
   * created from. */
  readonly openSources: () => Promise<ReadonlySet<string>>;
  /** The PVs that share a handle, by its name, as ingest published them; see shared-handles.ts. */
  readonly sharersOf: SharedHandles['sharersOf'];
}

/** What the flags say about runs. */
export interface Settings {
  /** The flags that the rules of src/volumes/ read. */
  readonly options: ProvisioningOptions;
  /** The part of an ownership that is left for writing the PV (--write-allowance). */
  readonly writeAllowanceMs: number;
  /** Longest delay after a failure (--retry-interval-max), which is also that after an infeasible
   * request. */
  readonly retryMaxMs: number;
  /** Whether ingest watches secrets, so that a key may park on one (--watch-secrets). */
  readonly areSecretsWatched: boolean;
  /** Whether a claim gets a finalizer while its record is open (--claim-finalizer). */
  readonly usesClaimFinalizer: boolean;
  /** Whether the data of Redis ends with this process, so that only that finalizer tells the next
   * one of a call (record rule 10). */
  readonly isSoftState: boolean;
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
  readonly workerConnection: WorkerConnection;
  readonly caches: Caches;
  /** What --record-key-file says; undefined without the flag. */
  readonly recordKeys: Pick<WatchedFiles<RecordKeys>, 'current'> | undefined;
  /** Set where ingest is the same process, and Redis its own. */
  readonly softState?: SoftState | undefined;
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
