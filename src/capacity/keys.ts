import { createHash } from 'node:crypto';
import { keyPrefix } from '../redis/key-names.ts';
import type { StorageCapacity } from '../kube/objects.ts';
import type { JobKey } from '../queue/contract.ts';
import { parseJson } from '../runtime/json.ts';
import type { CapacityItem } from '../volumes/capacity/items.ts';
import { type CapacityManager, NAME_PREFIX } from '../volumes/capacity/objects.ts';
import { isTerm } from '../topology/term.ts';

/* The jobs of the capacity queue. There are two: to ask the driver for one value and write it down,
 * and to delete an object that stands for no value. The key of the first is the value's class and
 * segment themselves, so equal ones have one job; the key of the second names the object. */

/** What a job of the capacity queue asks for. */
export type CapacityJob =
  | { readonly kind: 'refresh'; readonly item: CapacityItem }
  | { readonly kind: 'remove'; readonly namespace: string; readonly name: string };

/** Identity of an item, equal for equal ones. */
export function itemId({ className, segment }: CapacityItem): string {
  return hashOf([className, segment]);
}

/** The key of the job that refreshes a value. */
export function refreshKey(item: CapacityItem): JobKey {
  const name = JSON.stringify([item.className, item.segment]);
  return { kind: 'capacity', uid: itemId(item), namespace: '', name };
}

/** The key of the job that deletes an object. */
export function removalKey({ metadata }: Pick<StorageCapacity, 'metadata'>): JobKey {
  const { uid, namespace = '', name } = metadata;
  return { kind: 'capacity', uid, namespace, name };
}

/** @returns undefined for a key that neither function made */
export function parseCapacityKey({ namespace, name }: JobKey): CapacityJob | undefined {
  if (namespace !== '') return { kind: 'remove', namespace, name };
  const value = parseJson(name);
  if (!Array.isArray(value)) return undefined;
  const [className, segment] = value as readonly unknown[];
  if (typeof className !== 'string' || !isTerm(segment)) return undefined;
  return { kind: 'refresh', item: { className, segment } };
}

/** The name that sutler gives an item's object. It follows from the item, so that a creation whose
 * answer was lost is not repeated under another name. */
export function objectName({ driver, managedBy }: CapacityManager, item: CapacityItem): string {
  return NAME_PREFIX + hashOf([driver, managedBy, item.className, item.segment]);
}

/** Hash of the hints that wait for the leading ingest; hint-store.ts. */
export const hintsKey = nameDriverKey('capacity-hints');

/** Hash of when each value was last read from the driver; read-times.ts. */
export const readTimesKey = nameDriverKey('capacity-times');

/** When the next object may be written; write-limit.ts. */
export const writeLimitKey = nameDriverKey('capacity-writes');

function nameDriverKey(part: string) {
  return (prefix: string, driver: string) => `${keyPrefix(prefix)}:${part}:${driver}`;
}

function hashOf(parts: unknown): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 24);
}
