import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const LEASE = { namespace: 'default', name: 'sample-csi-sutler-dev' };
const BEAT = `{csi}:blessing:${DRIVER}`;
const SOON = [
  '--leader-election-lease-duration=2s',
  '--leader-election-renew-deadline=1s',
  '--leader-election-retry-period=300ms',
];

describe('the ingest that leads after every process was restarted', () => {
  let bed: ProcessBed;
  let backup: string;
  before(async () => {
    bed = await ProcessBed.open({ flags: SOON });
    backup = await mkdtemp(join(tmpdir(), 'sutler-backup-'));
  });
  after(async () => {
    await bed.close();
    await rm(backup, { recursive: true });
  });

  const sequence = async (): Promise<number> => Number(await bed.redis.redis.hget(BEAT, 'beat'));
  const restore = async (): Promise<void> => {
    await bed.redis.kill();
    await rm(bed.redis.dataDir, { recursive: true });
    await cp(backup, bed.redis.dataDir, { recursive: true });
    await bed.redis.start();
  };
  /** What it says about Redis' data once it leads. */
  const judged = async (ingest: Running): Promise<string> => {
    const before = await sequence();
    await until(async () => (await sequence()) !== before, 'it has confirmed the data');
    await ingest.stop();
    return /volume records may be lost.*/.exec(ingest.output.join(''))?.[0] ?? 'nothing is lost';
  };

  it('sees that Redis was restored to some seconds before', async () => {
    const ingest = await bed.startIngest();
    await until(async () => (await sequence()) >= 1, 'it leads');
    // The socket is no data, and can't be copied.
    await cp(bed.redis.dataDir, backup, {
      recursive: true,
      filter: (path) => !path.endsWith('.sock'),
    });
    const saved = await sequence();
    await until(async () => (await sequence()) >= saved + 3, 'some seconds pass');
    await ingest.stop();
    await restore();
    assert.match(await judged(await bed.startIngest()), /restored from the past/);
  });

  it('sees that Redis was restarted and the ingest that led was killed', async () => {
    const ingest = await bed.startIngest();
    await until(async () => {
      const lease = await bed.kube.get<Lease>(leases, LEASE);
      return /\/\w+$/.test(lease?.metadata.annotations?.['sutler.dev/sequence'] ?? '');
    }, 'the Lease has the process of Redis');
    bed.cluster.api.faults.inject({
      action: { kind: 'reset' },
      verb: 'update',
      plural: 'leases',
      times: Infinity,
    });
    await ingest.stop();
    bed.cluster.api.faults.clear();
    await bed.redis.kill();
    await bed.redis.start();
    assert.match(await judged(await bed.startIngest()), /restarted, and so was the ingest/);
  });

  it('goes on at once where ingest released the Lease before Redis was restarted', async () => {
    await bed.redis.kill();
    await bed.redis.start();
    assert.equal(await judged(await bed.startIngest()), 'nothing is lost');
  });
});
