import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { type DropInBed, openDropInBed } from '../harness/drop-in-bed.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const LEASE = [
  '--leader-election',
  '--leader-election-lease-duration=3s',
  '--leader-election-renew-deadline=2s',
  '--leader-election-retry-period=300ms',
];

/** A claim that is in doubt stays so for 12 s. */
const TIMES = ['--timeout=1s', '--settle-time=1s'];

describe('sutler in the place of external-provisioner', () => {
  const closers = new Closers();
  let bed: DropInBed;
  before(async () => {
    const { kubeconfig, close } = await openSandboxCluster({ binder: true });
    closers.add('cluster', close);
    bed = await openDropInBed({ kubeconfig, namespace: 'default', driverDelayMs: 200 });
  });
  after(async () => {
    assert.deepEqual([...(await bed.close()), ...(await closers.close())], []);
  });

  const start = (args: readonly string[] = [], env: Readonly<Record<string, string>> = {}) =>
    bed.start([...TIMES, ...args], env);
  const bind = async (name: string): Promise<void> => {
    await bed.createClaim(name);
    await until(() => bed.isBound(name), `${name} is Bound`);
  };
  const leaseRef = () => ({ namespace: 'default', name: bed.className });
  const readLease = () => bed.kube.get<Lease>(leases, leaseRef());
  const holder = async () => (await readLease())?.spec?.holderIdentity ?? '';

  it('works with upstream’s arguments alone, without a Lease, and removes the folder of a killed one', async () => {
    const folderOf = ({ output }: { output(): string }) =>
      dirname(/redis=(\S+)/.exec(output())?.[1] ?? '');
    const killed = await bed.start();
    await bind('plain');
    assert.equal(await readLease(), undefined);
    await killed.kill();
    const [left, next] = [folderOf(killed), await start()];
    assert.ok(left.length > 1);
    await until(() => !existsSync(left), 'the folder is removed');
    assert.ok(existsSync(folderOf(next)));
    await next.stop();
  });

  it('calls the driver for 20 claims at once without a warning of Node', async () => {
    const sutler = await bed.start();
    await Promise.all(Array.from({ length: 20 }, (_, i) => bind(`together-${i}`)));
    assert.doesNotMatch(sutler.output(), /Warning: /);
    await sutler.stop();
  });

  it('takes a place in memory where the temporary folder can’t be written', async () => {
    const sutler = await start([], { TMPDIR: '/proc' });
    await bind('read-only');
    await sutler.stop();
  });

  it('a command in its container reaches what it reaches, without a flag', async () => {
    const sutler = await start(['--redis-prefix=own', '-v=6']);
    await bind('looked-at');
    const said = async (...args: readonly string[]): Promise<string> => {
      const { code, out, err } = await bed.exec(...args);
      return `${code} ${out}${err}`;
    };
    await until(async () => (await said('status')).startsWith('0 '), 'status finds nothing wrong');
    assert.equal((await bed.exec('status')).err, '');
    assert.match(await said('explain', 'default/looked-at'), /^0 .*Bound to PersistentVolume/);
    assert.match(await said('audit', '--min-age=0s'), /^0 driver .* volumes?, /);
    assert.match(await said('drain', '--wait'), /^0 .*nothing that was begun is left/s);
    assert.match(await said('drain', '--undo'), /^0 .*is ended/s);
    assert.match(await said('forget', 'none', '--why=test'), /^1 .*has no entry none/s);
    assert.match(await said('uninstall'), /^1 .*stop sutler/s);
    const another = await said('drain', '--redis-url=redis://127.0.0.1:9');
    assert.match(another, /no cluster: this is not a pod/, 'one that names another Redis');
    await sutler.stop();
  });

  it('of two replicas with a Redis each the one that leads works, then the other', async () => {
    const replicas = [await start(LEASE), await start(LEASE)];
    await bind('by-the-first');
    const led = await holder();
    // Of the second one, whose Redis knows nothing.
    const says = async (): Promise<boolean> => {
      const { code, err } = await bed.exec('status');
      assert.equal(code, 1);
      return err.includes('run this in the leader (kubectl get leases names it)');
    };
    await until(says, 'it says which replica leads');
    await replicas[0]?.stop();
    await bind('by-the-second');
    assert.notEqual(await holder(), led);
    await replicas[1]?.stop();
  });

  it('calls nothing while another process holds the Lease, and goes on when that is over', async () => {
    const sutler = await start(LEASE);
    await until(async () => (await holder()).startsWith('sutler_'), 'it leads');
    const lease = await readLease();
    assert.ok(lease);
    const renewedMs = Date.now();
    const spec = {
      holderIdentity: 'other',
      renewTime: new Date(renewedMs).toISOString().replace('Z', '000Z'),
      leaseTransitions: (lease.spec?.leaseTransitions ?? 0) + 1,
    };
    await bed.kube.patch(leases, leaseRef(), { type: 'merge', body: { spec } });
    await until(() => /not leading any more/.test(sutler.output()), 'it has noticed');
    bed.ledger.resetTimes();
    await bind('waiting');
    const { first = 0 } = bed.ledger.timesOf('sutler') ?? {};
    assert.ok(first - renewedMs >= 3_000, 'not before the other one’s time is over');
    await sutler.stop();
  });
});
