import { create } from '@bufbuild/protobuf';
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { audit, type AuditPorts, type AuditReport, redisAuditLedger } from '#src/audit/audit.ts';
import { renderAudit } from '#src/audit/render.ts';
import { ListVolumesResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { volumes } from '#src/kube/resources.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { startRedisServer, type TcpRedisServer } from '../harness/redis-server.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const DRIVER = 'sample.csi.sutler.dev';
const HOUR_MS = 3_600_000;
const MIB = 1024n * 1024n;

describe('audit', () => {
  let dir: string;
  let server: TcpRedisServer;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let driver: SampleDriver;
  let csi: Pick<CsiClient, 'createVolume' | 'listVolumes' | 'close'>;
  let nowMs = 1_000 * HOUR_MS;
  const pages: number[] = [];

  const make = async (name: string): Promise<string> => {
    const { volume } = await csi.createVolume(
      {
        name,
        capacityRange: { requiredBytes: MIB },
        volumeCapabilities: [{ accessType: { case: 'mount', value: {} } }],
      },
      { timeoutMs: 5000 },
    );
    return volume?.volumeId ?? '';
  };
  const run = (ports: Partial<AuditPorts> = {}): Promise<AuditReport> =>
    audit({
      csi,
      kube,
      openCreations: () => Promise.resolve([]),
      ledger: redisAuditLedger({ redis, prefix: 'csi', driver: DRIVER }),
      driver: DRIVER,
      ownNode: undefined,
      timeoutMs: 5000,
      minAgeMs: HOUR_MS,
      nowMs: () => nowMs,
      ...ports,
    });

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-audit-'));
    server = await startRedisServer({ dataDir: dir });
    redis = new Redis(server.url);
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    driver = await startSampleDriver({
      socket: join(dir, 'csi.sock'),
      dataDir: join(dir, 'volumes'),
    });
    const plain = new CsiClient({
      address: { kind: 'unix', path: driver.socket },
    });
    // Small pages, as from a driver with a page limit of its own.
    csi = {
      createVolume: plain.createVolume.bind(plain),
      close: () => plain.close(),
      listVolumes: async (request, settings) => {
        assert.ok(!(request instanceof Uint8Array));
        const page = await plain.listVolumes(
          { startingToken: request.startingToken ?? '', maxEntries: 7 },
          settings,
        );
        pages.push(page.entries.length);
        return page;
      },
    };
  });
  after(async () => {
    csi.close();
    await driver.close();
    await cluster.close();
    redis.disconnect();
    await server.close();
    await rm(dir, { recursive: true, force: true });
  });

  it('reports exactly 20 orphans beside 40 volumes with a PV and 20 under way', async () => {
    const planted = await Promise.all(Array.from({ length: 20 }, (_, i) => make(`planted-${i}`)));
    for (let i = 0; i < 40; i += 1) await writeVolume(`live-${i}`, await make(`live-${i}`));
    const underWay = await Promise.all(
      Array.from({ length: 20 }, async (_, i) => ({
        name: `under-way-${i}`,
        handle: await make(`under-way-${i}`),
      })),
    );

    const first = await run();
    assert.deepEqual([first.orphans.length, first.notNamedYet.length], [0, 40]);

    for (const { name, handle } of underWay) await writeVolume(name, handle);
    nowMs += HOUR_MS;
    const second = await run();
    assert.deepEqual(second.orphans.map(({ handle }) => handle).sort(), [...planted].sort());
    assert.deepEqual(
      second.orphans.map(({ sizeBytes, firstSeenMs }) => [sizeBytes, firstSeenMs]),
      planted.map(() => [MIB, nowMs - HOUR_MS]),
    );
    assert.ok(pages.length > 10 && Math.max(...pages) === 7, pages.join(' '));
    assert.equal(driver.volumes().length, 80);
  });

  it('forgets that a volume was unknown once it has a name, or the driver has it no more', async () => {
    const ledger = redisAuditLedger({ redis, prefix: 'csi', driver: DRIVER });
    const before = await ledger.read();
    const named = await make('named-late');
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
    assert.deepEqual([...(await ledger.read()).keys()].sort(), [named, 'gone-later'].sort());
    await writeVolume('named-late', named);
    await lists(named);
    assert.deepEqual([...(await ledger.read()).keys()], []);
    await ledger.write(before);
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
            await writeVolume('newer', await make('newer'));
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

  it('takes no PV for missing that the process’s only node has not created', async () => {
    assert.deepEqual((await run({ ownNode: 'other' })).missing, []);
  });

  it('is printed as text, which says what to do', async () => {
    await make('new');
    const text = renderAudit(await run()).join('\n');
    assert.match(
      text,
      /Nothing was deleted; check each one before you delete it:\n {2}\S+ {2}1Mi {2}unknown since/,
    );
    assert.match(text, /its data is lost:\n {2}lost-0 {2}handle-0 {2}claim ns\/c\n/);
    assert.match(text, /from the time that is given:\n {2}\S+ {2}1Mi {2}counts from 1970-/);
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
