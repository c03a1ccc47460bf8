import { fromBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema } from '../csi/generated/csi_pb.ts';
import { askRedis } from '../redis/ask-redis.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { listIn } from '../runtime/json.ts';
import { toTerm } from '../topology/term.ts';
import type { VolumeRequest } from '../volumes/persistent-volume.ts';
import { type CapacityItem, itemId } from './items.ts';

/* What creations under way have asked for, which the driver may not have set aside yet: a hash in
 * Redis, by claim UID. A run writes its creation before the call, and removes it after it. */

/** Bytes that creations under way of a class ask for in a segment.
 * @throws RedisUnavailable */
export type RequestedBytes = (item: CapacityItem) => Promise<bigint>;

/** A run that died leaves its creation; the next run of the claim replaces it. */
const FORGOTTEN_MS = 3_600_000;

/** The creations of one driver. */
export function redisRequestedBytes(place: RedisPlace, nowMs: () => number): RequestedBytes {
  // Read for each value anew: an older reading could miss that a creation has just ended, and no
  // later hint would correct the value.
  return async (item) => (await askRedis(readSums(place, nowMs()))).get(itemId(item)) ?? 0n;
}

async function readSums(place: RedisPlace, nowMs: number): Promise<ReadonlyMap<string, bigint>> {
  const sums = new Map<string, bigint>();
  for (const text of await place.redis.hvals(driverKey(place, 'capacity-asks'))) {
    const [id, bytes, atMs] = listIn(text);
    if (typeof id !== 'string' || typeof bytes !== 'string' || !/^\d+$/.test(bytes)) continue;
    if (typeof atMs !== 'number' || nowMs - atMs > FORGOTTEN_MS) continue;
    sums.set(id, (sums.get(id) ?? 0n) + BigInt(bytes));
  }
  return sums;
}

/** A creation begins. */
export async function noteCreation(
  place: RedisPlace,
  planned: VolumeRequest,
  nowMs: number,
): Promise<void> {
  const { pvTemplate } = planned;
  const text = JSON.stringify([itemId(itemOfRequest(planned)), pvTemplate.requestedBytes, nowMs]);
  await place.redis.hset(driverKey(place, 'capacity-asks'), uidOf(planned), text);
}

/** It has ended. */
export async function forgetCreation(place: RedisPlace, planned: VolumeRequest): Promise<void> {
  await place.redis.hdel(driverKey(place, 'capacity-asks'), uidOf(planned));
}

function uidOf({ pvTemplate }: VolumeRequest): string {
  return pvTemplate.volume.spec.claimRef?.uid ?? '';
}

/** The item of which a creation takes: its volume is expected in the first of the places that it
 * prefers. */
export function itemOfRequest({
  request,
  pvTemplate,
}: Pick<VolumeRequest, 'request' | 'pvTemplate'>): CapacityItem {
  const { accessibilityRequirements } = fromBinary(CreateVolumeRequestSchema, request);
  const { preferred = [], requisite = [] } = accessibilityRequirements ?? {};
  const [place] = [...preferred, ...requisite];
  return {
    className: pvTemplate.volume.spec.storageClassName ?? '',
    segment: toTerm(place?.segments ?? {}),
  };
}
