import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { DriverBed } from '../harness/driver-bed.ts';
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
  /** The note of a leader would be a reason to refuse for 10 s. */
  const forgetLeader = (): Promise<unknown> => bed.redis.redis.del(`{csi}:note:${DRIVER}`);
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
    await forgetLeader();
    await setHolder('');
    const { code, err } = await uninstall('--yes');
    assert.equal(code, 1);
    assert.match(err, /jobs is still running: \S+; stop /);
    await isUntouched();
    await jobs.stop();
  });
  after(() => bed.close());

  it('refuses while an ingest leads, and names it', async () => {
    const ingest = await bed.startIngest('--leader-election-retry-period=1s');
    await until(async () => ((await readLease())?.spec?.holderIdentity ?? '') !== '', 'it leads');
    const { code, err } = await uninstall('--yes');
    assert.equal(code, 1);
    assert.match(
      err,
      /ingest is still running: (sutler_\S+ holds the Lease default\/one|a leader)/,
    );
    await isUntouched();
    await ingest.stop();
    await forgetLeader();
  });

  it('refuses while an ingest without leader election writes to its Redis', async () => {
    const ingest = await bed.startIngest('--leader-election=false');
    const { code, err } = await uninstall('--yes');
    assert.equal(code, 1);
    assert.match(err, /ingest is still running: a leader writes to this Redis; stop sutler/);
    await isUntouched();
    await ingest.stop();
    await forgetLeader();
  });

  it('waits for the Lease of an ingest that died, and leaves what another Redis marked', async () => {
    await bed.kube.create<Lease>(leases, 'default', {
      metadata: {
        name: 'two-csi-sutler-dev',
        namespace: 'default',
        annotations: { 'sutler.dev/redis-history': '1/of-another' },
      },
      spec: {},
    });
    await setHolder('sutler_died');
    const { code, out, err } = await uninstall('--yes');
    assert.equal(code, 0, out + err);
    assert.match(out, /sutler_died holds the Lease default\/one-csi-sutler-dev: waiting until/);
    assert.match(
      out,
      /stays: Lease default\/two-csi-sutler-dev, of another Redis or --redis-prefix\n/,
    );
    assert.deepEqual(
      [await markOf(), await markOf('two-csi-sutler-dev')],
      [undefined, '1/of-another'],
    );
    assert.deepEqual(await bed.redis.redis.keys('*'), []);
    assert.ok(await bed.isBound(provisioned), 'the claim keeps its volume');
  });

  it('goes on beside another provisioner that holds the Lease, and prints JSON', async () => {
    await setHolder('csi-provisioner-0');
    const { code, out, err } = await uninstall('--yes', '-o', 'json');
    assert.equal(code, 0, out + err);
    assert.deepEqual((JSON.parse(out) as { drivers: string[] }).drivers, []);
  });
});
