import type { CsiCalls } from '../csi/csi-calls.ts';
import { type KubeClient, listAll } from '../kube/client.ts';
import type { Volume } from '../kube/objects.ts';
import { volumes } from '../kube/resources.ts';
import type { OpenCreation } from '../hints/open-creations.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { replaceHash } from '../redis/replace-hash.ts';
import { identityOf } from '../volumes/handles.ts';
import { creatingNode } from '../volumes/own-node.ts';
import { auditId, findOrphans, type ListedVolume, type Unnamed } from './orphans.ts';

export interface AuditPorts {
  readonly csi: Pick<CsiCalls, 'listVolumes'>;
  readonly kube: Pick<KubeClient, 'list'>;
  readonly openCreations: () => Promise<readonly OpenCreation[]>;
  readonly ledger: ReturnType<typeof redisAuditLedger>;
  readonly driver: string;
  /** The only node whose volumes the driver lists; undefined for all. */
  readonly ownNode: string | undefined;
  /** Deadline of each ListVolumes call. */
  readonly timeoutMs: number;
  /** Age from which an unnamed volume is an orphan, counted from the audit that first found it. */
  readonly minAgeMs: number;
  readonly nowMs: () => number;
}

export interface AuditReport {
  readonly driver: string;
  readonly atMs: number;
  /** How many volumes the driver lists. */
  readonly volumes: number;
  /** How many PVs name a volume of the driver. */
  readonly persistentVolumes: number;
  /** Volumes that have had no PV for `minAgeMs`; oldest first. */
  readonly orphans: readonly Unnamed[];
  /** Volumes without a PV for a shorter time; the PV may still be written. */
  readonly notNamedYet: readonly Unnamed[];
  /** PVs whose volume the driver does not list. */
  readonly missing: readonly MissingVolume[];
  /** The claims in the journal; an unnamed volume may belong to one of them. */
  readonly openCreations: readonly OpenCreation[];
}

/** A volume that a PV names and the driver does not list. */
export interface MissingVolume {
  readonly persistentVolume: string;
  /** The PV's handle; for an in-tree PV the id of its volume. */
  readonly handle: string;
  /** "namespace/name"; '' for a PV without a claim. */
  readonly claim: string;
}

const PAGE_SIZE = 500;

/** Compares the driver's list of volumes with the PVs. Needs a driver with LIST_VOLUMES. Never
 * deletes anything.
 * @throws CsiError, KubeError or the error of Redis */
export async function audit(ports: AuditPorts): Promise<AuditReport> {
  const { driver, ledger, minAgeMs } = ports;
  const atMs = ports.nowMs();
  // Volumes first, PVs last: a volume whose PV is written in between must not look like an orphan.
  const listed = await listDriverVolumes(ports);
  const openCreations = await ports.openCreations();
  const persistent = await listNamed(ports);
  const idOf = (handle: string): string => auditId({ driver, form: 'csi', id: handle });
  const known = new Set(persistent.map(({ id }) => id));
  const unknown = listed.filter(({ handle }) => !known.has(idOf(handle)));
  const seenBefore = await ledger.read();
  const { orphans, notNamedYet } = findOrphans({ unknown, seenBefore, nowMs: atMs, minAgeMs });
  const seen = [...orphans, ...notNamedYet];
  await ledger.write(new Map(seen.map(({ handle, firstSeenMs }) => [handle, firstSeenMs])));
  const counts = { volumes: listed.length, persistentVolumes: persistent.length };
  const missing = await findMissing(ports, { listed, persistent, idOf });
  return { driver, atMs, ...counts, orphans, notNamedYet, missing, openCreations };
}

/** Finds the PVs whose volume the driver does not list. If there seem to be some, lists volumes and
 * PVs again: a PV may be newer than the first list of volumes, or its deletion may have ended. */
async function findMissing(
  ports: AuditPorts,
  found: {
    readonly listed: readonly ListedVolume[];
    readonly persistent: readonly Named[];
    readonly idOf: (handle: string) => string;
  },
): Promise<readonly MissingVolume[]> {
  const absentIn = (listed: readonly ListedVolume[], named: readonly Named[]): readonly Named[] => {
    const ids = new Set(listed.map(({ handle }) => found.idOf(handle)));
    return named.filter(({ id, volume }) => !ids.has(id) && isToBeListed(ports, volume));
  };
  if (absentIn(found.listed, found.persistent).length === 0) return [];
  const before = new Set(found.persistent.map(({ volume }) => volume.metadata.uid));
  const absent = absentIn(await listDriverVolumes(ports), await listNamed(ports));
  return absent
    .filter(({ volume }) => before.has(volume.metadata.uid))
    .map(({ id, volume: { metadata, spec } }) => ({
      persistentVolume: metadata.name,
      handle: spec.csi?.volumeHandle ?? id,
      claim: spec.claimRef ? `${spec.claimRef.namespace}/${spec.claimRef.name}` : '',
    }));
}

/** Whether the driver has to list the volume of a PV: not during its deletion, and not if it is on
 * another node. */
function isToBeListed({ driver, ownNode }: AuditPorts, volume: Volume): boolean {
  const { metadata, spec, status } = volume;
  const isDeleted =
    metadata.deletionTimestamp !== undefined ||
    (status?.phase === 'Released' && spec.persistentVolumeReclaimPolicy === 'Delete');
  return !isDeleted && (ownNode === undefined || creatingNode(volume, driver) === ownNode);
}

async function listDriverVolumes({ csi, timeoutMs }: AuditPorts): Promise<readonly ListedVolume[]> {
  const listed = new Map<string, ListedVolume>();
  for (let startingToken = ''; ;) {
    const page = await csi.listVolumes({ maxEntries: PAGE_SIZE, startingToken }, { timeoutMs });
    for (const { volume } of page.entries)
      if (volume !== undefined)
        listed.set(volume.volumeId, { handle: volume.volumeId, sizeBytes: volume.capacityBytes });
    // If a driver repeats its token, the list would never end.
    if (page.nextToken === '' || page.nextToken === startingToken) return [...listed.values()];
    startingToken = page.nextToken;
  }
}

/** A PV of the driver, with its volume's audit id. */
interface Named {
  readonly id: string;
  readonly volume: Volume;
}

async function listNamed({ kube, driver }: AuditPorts): Promise<readonly Named[]> {
  const named: Named[] = [];
  for await (const volume of listAll<Volume>(kube, volumes)) {
    const identity = identityOf(volume);
    if (identity?.driver === driver) named.push({ id: auditId(identity), volume });
  }
  return named;
}

/** Stores for the next audit when each handle was first found unnamed, Unix ms. */
export function redisAuditLedger(place: RedisPlace) {
  const { redis } = place;
  const key = driverKey(place, 'audit');
  return {
    async read(): Promise<ReadonlyMap<string, number>> {
      const fields = Object.entries(await redis.hgetall(key));
      return new Map(fields.map(([handle, ms]) => [handle, Number(ms)]));
    },
    /** Replaces the whole ledger. */
    write: (seen: ReadonlyMap<string, number>): Promise<void> => replaceHash(redis, key, seen),
  };
}
