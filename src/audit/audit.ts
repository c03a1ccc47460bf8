import type { CsiClient } from '../gateway-client/client.ts';
import type { KubeClient } from '../kube/client.ts';
import { listPages } from '../kube/list-pages.ts';
import type { Volume } from '../kube/objects.ts';
import { volumes } from '../kube/resources.ts';
import type { AuditLedger } from '../records/audit-ledger.ts';
import type { OpenRecord } from '../records/open-records.ts';
import { auditId, auditVolumes, type ListedVolume, type Orphan } from '../volumes/audit.ts';
import { identityOf } from '../volumes/handles.ts';

export interface AuditPorts {
  readonly csi: Pick<CsiClient, 'listVolumes'>;
  readonly kube: Pick<KubeClient, 'list'>;
  readonly openRecords: () => Promise<readonly OpenRecord[]>;
  readonly ledger: AuditLedger;
  readonly driver: string;
  /** Deadline of each ListVolumes call. */
  readonly timeoutMs: number;
  /** How long ago an earlier audit must have found a volume unknown before it is an orphan. */
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
  /** Volumes that no PV and no open record names, and did not name `minAgeMs` ago; oldest first. */
  readonly orphans: readonly Orphan[];
  /** How many volumes are unknown for a shorter time; their PVs may be about to be written. */
  readonly waiting: number;
  /** Suspects first: an orphan may be the volume of one of them. */
  readonly openRecords: readonly OpenRecord[];
}

const PAGE_SIZE = 500;

/** Compares the volumes that the driver lists with those that PVs and open records name. Needs a
 * driver with LIST_VOLUMES. Never deletes anything.
 * @throws CsiError, KubeError or the error of Redis */
export async function audit(ports: AuditPorts): Promise<AuditReport> {
  const { driver, ledger, minAgeMs } = ports;
  const atMs = ports.nowMs();
  // Volumes first, PVs last: a volume whose PV is written in between must not look like an orphan.
  const listed = await listDriverVolumes(ports);
  const openRecords = await ports.openRecords();
  const persistent = await listPersistentVolumeIds(ports);
  const idOf = (handle: string): string => auditId({ driver, form: 'csi', id: handle });
  const open = openRecords.flatMap(({ handle }) => (handle === undefined ? [] : [idOf(handle)]));
  const known = new Set([...persistent, ...open]);
  const { orphans, waiting, seen } = auditVolumes({
    volumes: listed,
    known,
    idOf,
    seenBefore: await ledger.read(),
    nowMs: atMs,
    minAgeMs,
  });
  await ledger.write(seen);
  const counts = { volumes: listed.length, persistentVolumes: persistent.length };
  return { driver, atMs, ...counts, orphans, waiting, openRecords };
}

async function listDriverVolumes({ csi, timeoutMs }: AuditPorts): Promise<readonly ListedVolume[]> {
  const listed = new Map<string, ListedVolume>();
  for (let startingToken = ''; ;) {
    const page = await csi.listVolumes({ maxEntries: PAGE_SIZE, startingToken }, { timeoutMs });
    for (const { volume } of page.entries)
      if (volume !== undefined)
        listed.set(volume.volumeId, { handle: volume.volumeId, sizeBytes: volume.capacityBytes });
    // A driver that repeats its token would be listed without end.
    if (page.nextToken === '' || page.nextToken === startingToken) return [...listed.values()];
    startingToken = page.nextToken;
  }
}

async function listPersistentVolumeIds({ kube, driver }: AuditPorts): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const { items: page } of listPages<Volume>(kube, volumes)) {
    for (const volume of page) {
      const identity = identityOf(volume);
      if (identity?.driver === driver) ids.push(auditId(identity));
    }
  }
  return ids;
}
