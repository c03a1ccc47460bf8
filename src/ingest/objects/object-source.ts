import type { Class, Volume } from '../../kube/objects.ts';
import type { JobKey } from '../../queue/contract.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import type { LeaderOnlyQueue } from '../leader-only-queue.ts';
import type { TriageDriver } from './predicates.ts';

/** A driver that is served, and who is told about its objects. */
export interface ServedDriver {
  readonly driver: TriageDriver;
  /** Receives the key of each object that changed and needs a job. */
  readonly queue: Pick<LeaderOnlyQueue, 'ensureQueued' | 'enqueueNow' | 'promote' | 'isAllowing'>;
  /** Called for a volume that should be deleted and must not be, when it changes and by
   * `reportRefused`. */
  readonly onRefused?: (volume: Volume, reason: string) => void;
  /** Called when a claim, class or volume was added, modified or deleted, with its id in the wait
   * list. */
  readonly onObject?: (object: string) => void;
  /** Called when it changed which PVs share a handle. */
  readonly onSharedHandles?: () => void;
}

/** Where this process learns of claims, classes and volumes. One serves all drivers. */
export interface ObjectSource {
  /** Begins to serve a driver, at any time. */
  serve(served: ServedDriver): DriverObjects;
  /** Resolves when the source knows all objects that it has to know, or when the signal aborts. */
  waitForSync(signal: AbortSignal): Promise<void>;
  /** For /readyz: why what is known is incomplete or out of date. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** The claims, classes and volumes as one driver sees them. */
export interface DriverObjects {
  /** Resolves when everything that concerns this driver is known, or when the signal aborts. */
  waitForSync(signal: AbortSignal): Promise<void>;
  /** Keys of all objects that need a job now, for a resync. */
  outstanding(): AsyncIterable<JobKey>;
  /** Calls `onRefused` for each volume that should be deleted and must not be. */
  reportRefused(): void;
  /** All objects that keys of this driver wait for, by their ids in the wait list; to be called
   * again when they change. Those of other resources are ignored. */
  follow(objects: ReadonlySet<string>): void;
  /** The version of a claim, class or volume that is followed; '' = it does not exist. Undefined:
   * another resource, or the version is not known now. */
  versionOf(object: string): string | undefined;
  /** All classes, without their parameters. */
  classes(): Iterable<Class>;
  /** The snapshots that pending claims of any namespace are restored from, as "namespace/name". */
  restoredSnapshots(): ReadonlySet<string> | Promise<ReadonlySet<string>>;
  /** Whether changes of PVs arrive at once, so that `sharedHandles` misses none. */
  readonly isFollowingVolumes: boolean;
  /** The PVs of this driver by each handle that several of them name. */
  sharedHandles(): HandleSharers;
  /** Ends serving this driver. The source goes on. */
  stop(): void;
}
