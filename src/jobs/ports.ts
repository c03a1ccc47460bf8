import type { ControllerCalls } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { Class, VolumeAttachment } from '../kube/objects.ts';
import type { VolumeNames } from '../records/names-in-use.ts';
import type { SharedHandles } from '../records/shared-handles.ts';
import type { VolumeRecords } from '../records/volume-record.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { DriverFacts } from '../volumes/driver-facts.ts';
import type { ProvisioningOptions } from '../volumes/flags.ts';
import type { WatchedTopology } from '../topology/requirement.ts';
import type { CapacityHints } from '../capacity/hints.ts';
import type { NodeLocal } from '../node-local/open-node-local.ts';
import type { OperationCounts } from './operation-counts.ts';

/** What the processors (reconcileClaim, reconcileVolume, reconcileSnapshot) work with.
 * open-ports.ts makes it once for the process; processors keep nothing between runs. */
export interface ProcessorPorts {
  readonly kube: Pick<KubeClient, 'get' | 'list' | 'createUnread' | 'patch' | 'delete'>;
  /** CreateVolume and DeleteVolume, through the gateway that each call names. */
  readonly csi: ControllerCalls;
  readonly records: VolumeRecords;
  /** Reads from the open records the UIDs of the snapshots and claims that volumes are being
   * created from. */
  readonly openSources: () => Promise<ReadonlySet<string>>;
  /** Which claim each shortened volume name is reserved for. */
  readonly names: Pick<VolumeNames, 'reserve' | 'release'>;
  readonly events: Pick<EventRecorder, 'record'>;
  readonly counts: OperationCounts;
  /** Tells ingest what to ask the driver's capacity of. */
  readonly capacity: CapacityHints;
  /** A StorageClass by its name, from caches.ts. */
  readonly classOf: (name: string) => Class | undefined;
  /** The attachments of a PV by its name, from caches.ts; none if the driver does not attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
  /** The nodes, from caches.ts; undefined until they are listed. Asked only for a driver with
   * topology. */
  readonly topology: () => WatchedTopology | undefined;
  /** The PVs that share a handle, by its name, as ingest published them; see shared-handles.ts. */
  readonly sharersOf: SharedHandles['sharersOf'];
  /** The driver's name and capabilities as they are now. */
  readonly driver: () => DriverFacts;
  /** The flags that the rules of src/volumes/ read. */
  readonly options: ProvisioningOptions;
  /** Deadline of one driver call (--timeout). */
  readonly timeoutMs: number;
  /** The part of an ownership that is left for writing the PV (--write-allowance). */
  readonly writeAllowanceMs: number;
  /** Longest delay after a failure (--retry-interval-max), and the length of a hold-off. */
  readonly retryMaxMs: number;
  /** Whether ingest watches secrets, so that a key may park on one (--watch-secrets). */
  readonly areSecretsWatched: boolean;
  /** Whether a claim gets a finalizer while its record is open (--claim-finalizer). */
  readonly usesClaimFinalizer: boolean;
  /** The gateway to call while no leader has named the active one: the only --gateway, or '' if
   * there are several, which refuses the call. */
  readonly endpoint: string;
  /** Set with --node-deployment. */
  readonly nodeLocal?: NodeLocal | undefined;
  /** Makes the name of an owner of records, unique to one attempt. */
  readonly newOwner: () => string;
  readonly clock: Clock;
  readonly log: Logger;
}
