import type { ControllerCalls } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { Class, VolumeAttachment } from '../kube/objects.ts';
import type { VolumeNames } from '../records/names-in-use.ts';
import type { VolumeRecords } from '../records/volume-record.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { DriverFacts, ProvisioningOptions } from '../volumes/provisioning-options.ts';

import type { OperationCounts } from './operation-counts.ts';

/** Everything a processor works with; it keeps nothing between runs. */
export interface ProcessorPorts {
  readonly kube: Pick<KubeClient, 'get' | 'list' | 'create' | 'patch' | 'delete'>;
  readonly csi: ControllerCalls;
  readonly records: VolumeRecords;
  /** UIDs of the snapshots and claims that open records fill their volumes from;
   * records/open-sources.ts. */
  readonly openSources: () => Promise<ReadonlySet<string>>;
  /** Which claim has a shortened volume name. */
  readonly names: Pick<VolumeNames, 'reserve' | 'release'>;
  readonly events: Pick<EventRecorder, 'record'>;
  readonly counts: OperationCounts;
  /** From the watched view of classes. */
  readonly classOf: (name: string) => Class | undefined;
  /** What a volume is still attached by, from the watched view of attachments; empty where the
   * driver doesn't attach. */
  readonly attachedTo: (volume: string) => readonly VolumeAttachment[];
  readonly driver: () => DriverFacts;
  readonly options: ProvisioningOptions;
  /** Deadline of one driver call. */
  readonly timeoutMs: number;
  /** Time inside an ownership that is left for writing the PV. */
  readonly writeAllowanceMs: number;
  /** Longest pause between attempts; what an infeasible request waits. */
  readonly retryMaxMs: number;
  /** Ingest wakes keys that wait for a secret. */
  readonly areSecretsWatched: boolean;
  /** Keep a finalizer on a claim while its record is open. */
  readonly claimFinalizer: boolean;
  /** The only gateway, '' where there are several: where calls go as long as no leader has named
   * one. */
  readonly endpoint: string;
  /** A text unique to each run. */
  readonly newOwner: () => string;
  readonly clock: Clock;
  readonly log: Logger;
}
