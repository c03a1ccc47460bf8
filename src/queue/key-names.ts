import { keyPrefix } from '../redis/key-names.ts';
import type { JobKind } from './contract.ts';

/* Names of the queues and of sutler's own keys about them. Some keys still have an older word in
 * their names (`awake`, `kick`), since processes of both versions share them during an upgrade.
 * BullMQ's keys: bullmq-layout.ts. */

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

/** The virtual time of a queue's fairness; queue/fairness-store.ts. */
export function fairnessKey(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:fairness:${queue}`;
}

/** Sorted set of the groups of the driver's wait list; queue/wait-list.ts. */
export function waitsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:waits:${driver}`;
}

/** When a worker of the queue was last alive, Unix ms; queue/heartbeat.ts. */
export function heartbeatKey(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:awake:${queue}`;
}

/** Mark that this job has a pending promotion; queue/pending-promotion.ts. */
export function pendingPromotionKey(prefix: string, queue: string, jobId: string): string {
  return `${keyPrefix(prefix)}:kick:${queue}:${jobId}`;
}
