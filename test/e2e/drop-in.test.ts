import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CLAIM_FINALIZER } from '#src/kube/keys.ts';
import type { Lease } from '#src/kube/objects.ts';
import { claims, leases } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { DropInBed } from '../harness/drop-in-bed.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const LEASE = [
  '--leader-election',
  '--leader-election-lease-duration=3s',
  '--leader-election-renew-deadline=2s',
  '--leader-election-retry-period=300ms',
];
/** One ownership and 5 s are 7 s. */
const TIMES = ['--timeout=1s', '--write-allowance=1s', '--settle-time=1s'];

describe('sutler in the place of external-provisioner', () => {
  const closers = new Closers();
  let bed: DropInBed;
  before(async () => {
    const { kubeconfig, close } = await openSandboxCluster({ binder: true });
    closers.add('cluster', close);
    bed = await DropInBed.open({ kubeconfig, namespace: 'default', driverDelayMs: 200 });
  });
  after(async () => {
    assert.deepEqual([...(await bed.close()), ...(await closers.close())], []);
  });

  const bind = async (name: string): Promise<void> => {
    await bed.createClaim(name);
    await until(() => bed.isBound(name), `${name} is Bound`);
  };
  const hasFinalizer = async (name: string): Promise<boolean> =>
    (await bed.readClaim(name))?.metadata.finalizers?.includes(CLAIM_FINALIZER) === true;
  const leaseRef = () => ({ namespace: 'default', name: bed.className });
  const readLease = () => bed.kube.get<Lease>(leases, leaseRef());
  const holder = async () => (await readLease())?.spec?.holderIdentity ?? '';

  it('works with upstream’s arguments alone, without a Lease as upstream does', async () => {
    const sutler = await bed.start();
    await bind('plain');
    assert.equal(await readLease(), undefined);
    await sutler.stop();
  });

  it('serves metrics and health at --metrics-address too', async () => {
    const sutler = await bed.start(['--http-endpoint=', '--metrics-address=127.0.0.1:0']);
    await until(() => /http=(\S+)/.test(sutler.output()), 'it listens');
    const [, url = ''] = /http=(\S+)/.exec(sutler.output()) ?? [];
    assert.equal((await fetch(`${url}/metrics`)).status, 200);
    assert.equal((await fetch(`${url}/healthz/leader-election`)).status, 200);
    await sutler.stop();
  });

  it('takes a place in memory where the temporary folder can’t be written', async () => {
    const sutler = await bed.start([], { TMPDIR: '/proc' });
    await bind('read-only');
    await sutler.stop();
  });

  it('removes the folder of a process that was killed', async () => {
    const folderOf = ({ output }: { output(): string }) =>
      dirname(/redis=(\S+)/.exec(output())?.[1] ?? '');
    const killed = await bed.start();
    await killed.kill();
    const [left, next] = [folderOf(killed), await bed.start()];
    assert.ok(left.length > 1);
    await until(() => !existsSync(left), 'the folder is removed');
    assert.ok(existsSync(folderOf(next)));
    await next.stop();
  });

  it('a killed container is followed by one that finishes the same volume', async () => {
    const first = await bed.start([...TIMES]);
    await bed.createClaim('killed');
    await until(() => hasFinalizer('killed'), 'its creation has begun');
    await first.kill();
    const second = await bed.start([...TIMES]);
    await bind('meanwhile');
    assert.equal(await bed.isBound('killed'), false);
    await until(() => bed.isBound('killed'), 'killed is Bound');
    assert.deepEqual(bed.ledger.madeAgain(), []);
    await until(async () => !(await hasFinalizer('killed')), 'the finalizer is removed');
    await second.stop();
  });

  it('of two replicas with a Redis each the one that leads works, then the other', async () => {
    const replicas = [await bed.start(LEASE), await bed.start(LEASE)];
    await bind('by-the-first');
    const led = await holder();
    await replicas[0]?.stop();
    await bind('by-the-second');
    assert.notEqual(await holder(), led);
    await replicas[1]?.stop();
  });

  it('leaves no mark on the Lease, and no finalizer after a stop', async () => {
    const sutler = await bed.start(LEASE);
    await bind('marked');
    await sutler.stop();
    assert.deepEqual((await readLease())?.metadata.annotations ?? {}, {});
    assert.equal(await hasFinalizer('marked'), false);
  });

  it('ends with status 1 when another process has taken the Lease', async () => {
    const sutler = await bed.start(LEASE);
    await until(async () => (await holder()).startsWith('sutler_'), 'it leads');
    const lease = await readLease();
    assert.ok(lease);
    await bed.kube.patch(leases, leaseRef(), {
      type: 'merge',
      body: {
        spec: {
          holderIdentity: 'other',
          renewTime: new Date().toISOString().replace('Z', '000Z'),
          leaseTransitions: (lease.spec?.leaseTransitions ?? 0) + 1,
        },
      },
    });
    assert.equal(await sutler.exited, 1);
    assert.match(sutler.output(), /other has taken the Lease/);
    await bed.kube.delete(leases, leaseRef());
  });

  it('deletes what is Released at once after a start', async () => {
    const sutler = await bed.start();
    const had = bed.handles().length;
    for (const name of ['plain', 'killed'])
      await bed.kube.delete(claims, { namespace: 'default', name });
    await until(() => bed.handles().length === had - 2, 'the volumes are deleted', 10_000);
    await sutler.stop();
  });
});
