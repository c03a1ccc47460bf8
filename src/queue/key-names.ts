import { keyPrefix } from '../redis/key-names.ts';
import type { JobKind } from './contract.ts';

/** The driver's queue for one kind of job: `claims.<driver>`, `volumes.<driver>`,
 * `snapshots.<driver>`. */
export function queueName(kind: JobKind, driver: string): string {
  // ':' separates the parts of BullMQ's keys.
  return `${kind}s.${driver.replaceAll(':', '-')}`;
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

/** Set of what parked keys wait for, `object@version`, scored by a counter; the keys of each are in
 * a hash of its own. queue/wait-list.ts. */
export function waitsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:waits:${driver}`;
}

/** When a worker of the queue was last alive, Unix ms; queue/heartbeat.ts. */
export function heartbeatKey(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:awake:${queue}`;
}

/** A kick that met a run of this job; queue/pending-promotion.ts. */
export function pendingPromotionKey(prefix: string, queue: string, jobId: string): string {
  return `${keyPrefix(prefix)}:kick:${queue}:${jobId}`;
}
