import type { CsiClient } from '../gateway-client/client.ts';
import type { KubeClient } from '../kube/client.ts';
import type { Volume } from '../kube/objects.ts';
import { volumes } from '../kube/resources.ts';
import type { AuditLedger } from '../records/audit-ledger.ts';
import type { OpenRecord } from '../records/open-records.ts';
import { auditId, auditVolumes, type ListedVolume, type Orphan } from '../volumes/audit.ts';
import { identityOf } from '../volumes/handles.ts';

/** What an audit works with. */
export interface AuditPorts {
  readonly csi: Pick<CsiClient, 'listVolumes'>;
  readonly kube: Pick<KubeClient, 'list'>;
  readonly openRecords: () => Promise<readonly OpenRecord[]>;
  readonly ledger: AuditLedger;
  readonly driver: string;
  readonly timeoutMs: number;
  readonly minAgeMs: number;
  readonly nowMs: () => number;
}

export interface AuditReport {
  readonly driver: string;
  readonly atMs: number;
  readonly volumes: number;
  readonly persistentVolumes: number;
  /** Volumes that nothing names, also at an audit at least minAgeMs ago; oldest first. */
  readonly orphans: readonly Orphan[];
  /** Unknown, but not for long enough: volumes under way look like this. */
  readonly waiting: number;
  /** Suspects first: an orphan may be the volume of one of them. */
  readonly openRecords: readonly OpenRecord[];
}

const PAGE = 500;

/** Compares what the driver has with what PVs and open records name. Needs a driver with
 * LIST_VOLUMES. Never deletes anything.
 * @throws CsiError, KubeError or Redis' error when one of the three can't be asked */
export async function audit(ports: AuditPorts): Promise<AuditReport> {
  const atMs = ports.nowMs();
  // In this order: a volume that gets its PV between the two lists must not look like an orphan.
  const listed = await listAll(ports);
  const openRecords = await ports.openRecords();
  const handles = await handlesOfVolumes(ports);
  const idOf = (handle: string): string =>
    auditId({ driver: ports.driver, form: 'csi', id: handle });
  const known = new Set([
    ...handles,
    ...openRecords.flatMap(({ handle }) => (handle === undefined ? [] : [idOf(handle)])),
  ]);
  const result = auditVolumes({
    volumes: listed,
    known,
    idOf,
    seenBefore: await ports.ledger.read(),
    nowMs: atMs,
    minAgeMs: ports.minAgeMs,
  });
  await ports.ledger.write(result.seen);
  return {
    driver: ports.driver,
    atMs,
    volumes: listed.length,
    persistentVolumes: handles.length,
    orphans: result.orphans,
    waiting: result.waiting,
    openRecords,
  };
}

async function listAll({ csi, timeoutMs }: AuditPorts): Promise<readonly ListedVolume[]> {
  const found = new Map<string, ListedVolume>();
  for (let startingToken = ''; ;) {
    const page = await csi.listVolumes({ maxEntries: PAGE, startingToken }, { timeoutMs });
    for (const { volume } of page.entries) {
      if (volume !== undefined)
        found.set(volume.volumeId, { handle: volume.volumeId, sizeBytes: volume.capacityBytes });
    }
    if (page.nextToken === '' || page.nextToken === startingToken) return [...found.values()];
    startingToken = page.nextToken;
  }
}

async function handlesOfVolumes({ kube, driver }: AuditPorts): Promise<readonly string[]> {
  const handles: string[] = [];
  for (let continueToken: string | undefined; ;) {
    const page = await kube.list<Volume>(volumes, {
      limit: PAGE,
      ...(continueToken === undefined ? {} : { continueToken }),
    });
    for (const volume of page.items) {
      const found = identityOf(volume);
      if (found?.driver === driver) handles.push(auditId(found));
    }
    if (page.continueToken === undefined || page.continueToken === '') return handles;
    ({ continueToken } = page);
  }
}
