import { keyPrefix } from '../redis/key-prefix.ts';
import type { JobKind } from './contract.ts';

/* Names of the queues and of sutler's own keys about them. */

/** The driver's queue for one kind of job: `claims.<driver>`, `volumes.<driver>`. */
export function queueName(kind: JobKind, driver: string): string {
  // ':' separates the parts of BullMQ's keys.
  return `${kind}s.${driver.replaceAll(':', '-')}`;
}

/** The prefix of BullMQ's keys of a queue. Scripts of run.ts, history.ts and work-queue.ts use
 * these keys (each says why), and activeJobIds reads one; other code uses BullMQ's API.
 * @throws UsageError for a prefix that is not allowed */
export function queueRoot(prefix: string, queue: string): string {
  return `${keyPrefix(prefix)}:${queue}:`;
}

/** Hash of the drivers of an installation, with the namespace of each driver's Lease;
 * queue/queues.ts. */
export function driversKey(prefix: string): string {
  return `${keyPrefix(prefix)}:drivers`;
}

/** JSON of why a key waits; queue/status.ts. */
export function statusKey(prefix: string, driver: string, uid: string): string {
  return `${keyPrefix(prefix)}:last-run:${driver}:${uid}`;
}

/** Hash of the driver's keys that wait for objects; queue/status.ts. */
export function waitsKey(prefix: string, driver: string): string {
  return `${keyPrefix(prefix)}:waits:${driver}`;
}

/** Sorted set of the keys with a place in the limit of a class; jobs/class-limit.ts. */
export function classPlacesKey(prefix: string, queue: string, className: string): string {
  return `${keyPrefix(prefix)}:class:${queue}:${className}`;
}

/** A random text that lives as long as Redis' data; queue/history.ts. */
export function markerKey(prefix: string): string {
  return `${keyPrefix(prefix)}:marker`;
}
