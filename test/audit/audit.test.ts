import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { audit, type AuditPorts, type AuditReport, redisAuditLedger } from '#src/audit/audit.ts';
import { renderAudit } from '#src/audit/render.ts';
import { ListVolumesResponseSchema } from '#src/csi/generated/csi_pb.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { volumes } from '#src/kube/resources.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const DRIVER = 'sample.csi.sutler.dev';
const HOUR_MS = 3_600_000;
const MIB = 1024n * 1024n;
const PAGE = 7;

describe('audit', () => {
  let redis: TestRedis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let nowMs = 1_000 * HOUR_MS;
  /** The handles of the driver's volumes. */
  const handles: string[] = [];
  const make = (name: string): string => {
    handles.push(name);
    return name;
  };
  /** Lists in small pages, as a driver with a page limit of its own. */
  const csi: AuditPorts['csi'] = {
    listVolumes(request) {
      assert.ok(!(request instanceof Uint8Array));
      const from = Number(request.startingToken ?? '0');
      const page = handles.slice(from, from + PAGE);
      const nextToken = from + PAGE < handles.length ? `${from + PAGE}` : '';
      const entries = page.map((volumeId) => ({ volume: { volumeId, capacityBytes: MIB } }));
      return Promise.resolve(create(ListVolumesResponseSchema, { entries, nextToken }));
    },
  };
  const ledger = () => redisAuditLedger({ redis: redis.redis, prefix: 'csi', driver: DRIVER });
  const run = (ports: Partial<AuditPorts> = {}): Promise<AuditReport> =>
    audit({
      csi,
      kube,
      openCreations: () => Promise.resolve([]),
      ledger: ledger(),
      driver: DRIVER,
      ownNode: undefined,
      timeoutMs: 5000,
      minAgeMs: HOUR_MS,
      nowMs: () => nowMs,
      ...ports,
    });

  before(async () => {
    redis = await startTestRedis();
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(async () => {
    await cluster.close();
    await redis.close();
  });

  it('reports exactly 20 orphans beside 40 volumes with a PV and 20 under way', async () => {
    const made = (part: string, count: number): readonly string[] =>
      Array.from({ length: count }, (_, i) => make(`${part}-${i}`));
    const planted = made('planted', 20);
    for (const handle of made('live', 40)) await writeVolume(handle, handle);
    const underWay = made('under-way', 20);

    const first = await run();
    assert.deepEqual([first.orphans.length, first.notNamedYet.length], [0, 40]);

    for (const handle of underWay) await writeVolume(handle, handle);
    nowMs += HOUR_MS - 1;
    assert.deepEqual((await run()).orphans, []);
    nowMs += 1;
    const second = await run();
    assert.deepEqual(second.orphans.map(({ handle }) => handle).sort(), [...planted].sort());
    assert.deepEqual(
      second.orphans.map(({ sizeBytes, firstSeenMs }) => [sizeBytes, firstSeenMs]),
      planted.map(() => [MIB, nowMs - HOUR_MS]),
    );
  });

  it('forgets that a volume was unknown once it has a name, or the driver has it no more', async () => {
    const before = await ledger().read();
    const named = make('named-late');
    const lists = async (...ids: string[]): Promise<AuditReport> =>
      run({
        csi: {
          listVolumes: () =>
            Promise.resolve(
              create(ListVolumesResponseSchema, {
                entries: ids.map((volumeId) => ({ volume: { volumeId } })),
              }),
            ),
        },
      });
    await lists(named, 'gone-later');
    assert.deepEqual([...(await ledger().read()).keys()].sort(), [named, 'gone-later'].sort());
    await writeVolume('named-late', named);
    await lists(named);
    assert.deepEqual([...(await ledger().read()).keys()], []);
    await ledger().write(before);
  });

  it('lists the claims in the journal, whose volumes may be among the unnamed ones', async () => {
    const open = {
      uid: 'u',
      object: 'ns/c',
      journal: 'd-example-journal-0',
      isBegun: true,
      inDoubtUntilMs: Date.UTC(2026, 0, 1),
      reason: 'no room',
    };
    const report = await run({ openCreations: () => Promise.resolve([open]) });
    assert.deepEqual(report.openCreations, [open]);
    assert.match(
      renderAudit(report).join('\n'),
      /ns\/c {2}u {2}a call may be at work in the driver until 2026-01-01T00:00:00Z {2}last run: no room/,
    );
  });

  it('reports 10 PersistentVolumes whose volume the driver does not list', async () => {
    for (let i = 0; i < 10; i += 1) await writeVolume(`lost-${i}`, `handle-${i}`);
    const { missing } = await run();
    assert.deepEqual(
      missing.map(({ persistentVolume, handle, claim }) => [persistentVolume, handle, claim]),
      Array.from({ length: 10 }, (_, i) => [`lost-${i}`, `handle-${i}`, 'ns/c']),
    );
  });

  it('takes no PV for missing that is deleted, or is newer than the list of volumes', async () => {
    await writeVolume('going', 'going', { persistentVolumeReclaimPolicy: 'Delete' });
    const going = { type: 'merge', body: { status: { phase: 'Released' } } } as const;
    await kube.patch(volumes, { name: 'going' }, { ...going, subresource: 'status' });
    let pages = 0;
    const { missing } = await run({
      csi: {
        async listVolumes(request, settings) {
          const page = await csi.listVolumes(request, settings);
          if (page.nextToken === '' && (pages += 1) === 1)
            await writeVolume('newer', make('newer'));
          return page;
        },
      },
    });
    const names = missing.map(({ persistentVolume }) => persistentVolume);
    assert.deepEqual(
      names,
      Array.from({ length: 10 }, (_, i) => `lost-${i}`),
    );
  });

  it('is printed as text, which says what to do', async () => {
    make('new');
    const text = renderAudit(await run()).join('\n');
    assert.match(
      text,
      /sutler audit deletes nothing; check each one before you delete it:\n {2}\S+ {2}1Mi {2}unknown since/,
    );
    assert.match(text, /its data is lost:\n {2}lost-0 {2}handle-0 {2}claim ns\/c\n/);
    assert.match(text, /from this time on:\n {2}\S+ {2}1Mi {2}counts from 1970-/);
  });

  async function writeVolume(name: string, handle: string, more: object = {}): Promise<void> {
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      csi: { driver: DRIVER, volumeHandle: handle },
      claimRef: { namespace: 'ns', name: 'c' },
      ...more,
    };
    await kube.create(volumes, undefined, { metadata: { name }, spec });
  }
});
