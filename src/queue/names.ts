import { UsageError } from '../runtime/flags.ts';
import type { JobKind } from './contract.ts';

/** The value of --redis-prefix unless given. */
export const DEFAULT_PREFIX = 'csi';

/** What every key of an installation begins with: `{csi}`. The braces put all of them into one slot of a Redis Cluster.
 * @throws UsageError for a prefix that could not be told from the rest of a key */
export function keyPrefix(prefix: string): string {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(prefix)) {
    throw new UsageError(`--redis-prefix=${prefix}: use 1 to 64 letters, digits, '.', '_' or '-' (braces are added)`);
  }
  return `{${prefix}}`;
}

/** The driver's queue for one kind of job: `claims.<driver>`, `volumes.<driver>`, `snapshots.<driver>`. */
export function queueName(kind: JobKind, driver: string): string {
  // ':' separates the parts of BullMQ's keys.
  return `${kind}s.${driver.replaceAll(':', '-')}`;
}

/** Random value that lives as long as Redis' data: gone or changed means that Redis was emptied. */
export function epochKey(prefix: string): string {
  return `${keyPrefix(prefix)}:epoch`;
}

/** Hash of the queues there are; queue/registry.ts. */
export function registryKey(prefix: string): string {
  return `${keyPrefix(prefix)}:queues`;
}

/** Hash that says why a key waits; queue/status.ts. */
export function statusKey(prefix: string, driver: string, uid: string): string {
  return `${keyPrefix(prefix)}:status:${driver}:${uid}`;
}

/** The virtual time of a queue's fairness; queue/fairness.ts. */
export function fairnessKey(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:fairness:${queue}`;
}

/** Hash of one volume under way; queue/volume-record. */
export function volumeRecordKey(prefix: string, driver: string, id: string): string {
  return `${keyPrefix(prefix)}:volume:${driver}:${id}`;
}

/** Hash that says since when what Redis holds of a driver can be relied on; queue/volume-record/blessing.ts. */
export function blessingKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:blessing:${driver}`;
}

/** Hash that names the one gateway of a driver that gets calls; queue/active-gateway. */
export function activeGatewayKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:gateway:${driver}`;
}

/** Hash of a driver's open records: record id to job key; queue/volume-record. */
export function openRecordsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:open:${driver}`;
}

/** Hash of volumes that audits found unknown: handle to the time; queue/audit-ledger.ts. */
export function auditKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:audit:${driver}`;
}

/** List of records that operators dropped, the latest first; queue/volume-record/forget.ts. */
export function forgottenKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:forgotten:${driver}`;
}

/** Set of what parked keys wait for, `object@version`, scored by a counter; the keys of each are in a hash of its own. queue/wait-list.ts. */
export function waitsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:waits:${driver}`;
}

/** When a worker of the queue was last alive, Unix ms; queue/worker-beat.ts. */
export function awakeKey(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:awake:${queue}`;
}

/** A kick that met a run of this job; queue/late-kick.ts. */
export function kickKey(prefix: string, queue: string, jobId: string): string {
  return `${keyPrefix(prefix)}:kick:${queue}:${jobId}`;
}

/** UID of the cluster that this installation belongs to; queue/cluster-marker.ts. */
export function clusterKey(prefix: string): string {
  return `${keyPrefix(prefix)}:cluster`;
}
