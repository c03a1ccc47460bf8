import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { DriverBed } from '../harness/process-bed.ts';
import { urlOf } from '../harness/redis-users.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';

const DRIVER = 'one.csi.sutler.dev';
const LEASE = { namespace: 'default', name: 'one-csi-sutler-dev' };

describe('sutler uninstall of an installation that serves claims', () => {
  let bed: DriverBed;
  let provisioned: Claim;
  const uninstall = (...args: string[]) =>
    runSutler(['uninstall', `--kubeconfig=${bed.cluster.kubeconfig}`, ...args], {
      REDIS_URL: urlOf('operator', bed.redis.url),
    });
  const readLease = async (name = LEASE.name): Promise<Lease | undefined> =>
    bed.kube.get<Lease>(leases, { ...LEASE, name });
  const markOf = async (name?: string): Promise<string | undefined> =>
    (await readLease(name))?.metadata.annotations?.['sutler.dev/redis-history'];
  const setHolder = async (holderIdentity: string): Promise<void> => {
    const spec = { holderIdentity, leaseDurationSeconds: 2 };
    await bed.kube.patch(leases, LEASE, { type: 'merge', body: { spec } });
  };
  /** A process names itself within two seconds. */
  const untilNamed = (): Promise<void> =>
    until(async () => (await bed.redis.redis.hlen('{csi}:processes')) === 1, 'it names itself');
  const isUntouched = async (): Promise<void> => {
    assert.ok((await markOf()) !== undefined, 'the Lease has our annotation');
    assert.ok(
      (await bed.redis.redis.exists(`{csi}:jobs-history:${DRIVER}`)) === 1,
      'Redis has keys',
    );
  };
  before(async () => {
    bed = await DriverBed.open();
    await bed.serve([await bed.addDriver(DRIVER)]);
    const jobs = await bed.startJobs();
    const ingest = await bed.startIngest();
    provisioned = await bed.newClaim(DRIVER);
    await until(() => bed.isBound(provisioned), 'the claim is bound');
    await ingest.stop();
    await untilNamed();
    const { code, err } = await uninstall('--yes');
    assert.equal(code, 1);
    assert.match(err, /jobs is still running: \S+ was alive in the last 10 s; stop sutler/);
    await isUntouched();
    await jobs.stop();
  });
  after(() => bed.close());

  it('refuses while an ingest runs, and names it', async () => {
    const ingest = await bed.startIngest('--leader-election=false');
    await untilNamed();
    const { code, err } = await uninstall('--yes');
    assert.equal(code, 1);
    assert.match(err, /ingest is still running: .*; nothing was removed/);
    await isUntouched();
    await ingest.stop();
  });

  it('leaves a Lease that names another Redis, with its journal, and says what to do', async () => {
    const mark = async (history?: string): Promise<unknown> => {
      const annotations = { 'sutler.dev/redis-history': history };
      return bed.kube.patch(leases, LEASE, { type: 'merge', body: { metadata: { annotations } } });
    };
    const before = await markOf();
    await mark('1/of-another');
    const { code, out, err } = await uninstall();
    await mark(before);
    assert.equal(code, 0, out + err);
    assert.match(
      out,
      /^0 Leases of the journal, annotation sutler\.dev\/redis-history on 0 Leases/m,
    );
    assert.match(
      out,
      /left: Lease default\/one-csi-sutler-dev and its journal, .*kubectl -n default annotate/,
    );
  });

  it('leaves the annotations of another Redis, and a Lease that somebody holds', async () => {
    await bed.kube.create<Lease>(leases, 'default', {
      metadata: {
        name: 'two-csi-sutler-dev',
        namespace: 'default',
        annotations: { 'sutler.dev/redis-history': '1/of-another' },
      },
      spec: {},
    });
    await setHolder('csi-provisioner-0');
    const { code, out, err } = await uninstall('--yes');
    assert.equal(code, 0, out + err);
    assert.deepEqual(
      [await markOf(), await markOf('two-csi-sutler-dev')],
      [undefined, '1/of-another'],
    );
    assert.deepEqual(await bed.redis.redis.keys('*'), []);
    assert.ok(await bed.isBound(provisioned), 'the claim keeps its volume');
  });

  it('prints JSON', async () => {
    const { code, out, err } = await uninstall('--yes', '-o', 'json');
    assert.equal(code, 0, out + err);
    assert.deepEqual((JSON.parse(out) as { drivers: string[] }).drivers, []);
  });
});
