import { fromBinary } from '@bufbuild/protobuf';
import type { Redis } from 'ioredis';
import { CreateVolumeRequestSchema } from '../csi/generated/csi_pb.ts';
import { askRedis } from '../records/ask-redis.ts';
import { volumeRecordKey } from '../records/key-names.ts';
import { openJobs } from '../records/open-records.ts';
import { decodeRequest, type VolumeRequest } from '../records/stored-request.ts';
import { type CapacityItem, itemId } from './items.ts';
import { toTerm } from '../topology/term.ts';

/* What creations under way have asked for, which the driver may not have set aside yet. The open
 * volume records tell: each keeps the request that was or is being sent. */

/** Bytes that open creations of a class ask for in a segment.
 * @throws RecordsUnavailable */
export type RequestedBytes = (item: CapacityItem) => Promise<bigint>;

/** The creations of one driver. */
export function redisRequestedBytes(redis: Redis, prefix: string, driver: string): RequestedBytes {
  // Read for each value anew: an older reading could miss that a creation has just ended, and no
  // later hint would correct the value.
  return async (item) => (await askRedis(readSums(redis, prefix, driver))).get(itemId(item)) ?? 0n;
}

async function readSums(
  redis: Redis,
  prefix: string,
  driver: string,
): Promise<ReadonlyMap<string, bigint>> {
  const sums = new Map<string, bigint>();
  const ids = [...(await openJobs(redis, prefix, driver)).keys()];
  const records = await Promise.all(
    ids.map((id) => redis.hmget(volumeRecordKey(prefix, driver, id), 'state', 'req', 'skel')),
  );
  for (const [state, request, pvTemplate] of records) {
    if ((state !== 'creating' && state !== 'suspect') || !request || !pvTemplate) continue;
    const { item, bytes } = readRequest(request, pvTemplate);
    const id = itemId(item);
    sums.set(id, (sums.get(id) ?? 0n) + bytes);
  }
  return sums;
}

function readRequest(
  request: string,
  pvTemplate: string,
): { readonly item: CapacityItem; readonly bytes: bigint } {
  const stored = decodeRequest({ request, pvTemplate, secret: '', endpoint: '' });
  return { item: itemOfRequest(stored), bytes: BigInt(stored.pvTemplate.requestedBytes) };
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
