import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, leases, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { type DropInBed, openDropInBed } from '../harness/drop-in-bed.ts';
import type { SutlerProcess as DropIn } from '../harness/program.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const CLAIMS = 20;
/** Of NFS' driver: a claim is in doubt for more than 20 minutes. */
const LONG = '--timeout=1200s';
/** A claim is in doubt for 12 s. */
const SHORT = ['--timeout=1s', '--settle-time=1s'];

describe('a drop-in without a file of its own', () => {
  const closers = new Closers();
  let cluster: SandboxCluster;
  let bed: DropInBed;
  before(async () => {
    cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    const { kubeconfig } = cluster;
    bed = await openDropInBed({ kubeconfig, namespace: 'default', driverDelayMs: 300 });
  });
  after(async () => {
    assert.deepEqual([...(await bed.close()), ...(await closers.close())], []);
  });

  const command = async (...args: readonly string[]): Promise<string> => {
    const { out, err } = await bed.exec(...args);
    return out + err;
  };
  const remove = (name: string) => bed.kube.delete(claims, { namespace: 'default', name });
  const volumesLeft = async () => (await bed.kube.list<Volume>(volumes, {})).items.length;
  const createAll = (part: string): Promise<readonly Claim[]> =>
    Promise.all(Array.from({ length: CLAIMS }, (_, i) => bed.createClaim(`${part}-${i}`)));

  describe('without any right on Leases', () => {
    let sutler: DropIn;
    let grant = (): void => undefined;
    before(async () => {
      const action = { kind: 'status', code: 403, message: 'leases is forbidden' } as const;
      grant = cluster.api.faults.inject({ action, plural: leases.plural, times: Infinity });
      sutler = await bed.start(SHORT);
    });
    after(async () => {
      grant();
      await sutler.stop();
    });
    const RULE = /without its journal.*default: apiGroups.*leases.*verbs: \[get, list, create, upd/;

    it('creates and deletes volumes', async () => {
      await bed.createClaim('without');
      await until(() => bed.isBound('without'), 'the claim is Bound');
      await remove('without');
      await until(async () => (await volumesLeft()) === 0, 'no PV is left');
      assert.deepEqual(bed.handles(), []);
    });

    it('says which rule it lacks at the start, in status, and in a metric', async () => {
      assert.match(sutler.output(), RULE);
      await until(async () => RULE.test(await command('status')), 'status says so', 5_000);
      const isOff = async () =>
        /^sutler_journal_off\{[^}]*\} 1$/m.test(
          await (await fetch(`${sutler.url}/metrics`)).text(),
        );
      await until(isOff, 'the metric says so');
    });

    it('goes on when it is killed, as external-provisioner does', async () => {
      await bed.untilCreating(() => bed.createClaim('killed'));
      await sutler.kill();
      sutler = await bed.start(SHORT);
      await until(() => bed.isBound('killed'), 'the claim is Bound');
      await remove('killed');
      await until(() => bed.handles().length === 0, 'its volume is deleted', 30_000);
    });
  });

  describe('that is killed while it creates volumes', () => {
    let sutler: DropIn;
    /** Claims that are kept, with the names of their volumes. */
    const kept: Claim[] = [];
    let deleted: readonly Claim[] = [];
    before(async () => {
      sutler = await bed.start([LONG, '--worker-threads=10']);
    });
    after(() => sutler.stop());

    it('goes on at once with all claims, under the same names', async () => {
      let made: readonly Claim[] = [];
      await bed.untilCreating(async () => (made = await createAll('first')));
      await until(() => bed.handles().length > CLAIMS / 3, 'a third of the volumes');
      await sutler.kill();
      // Of these some have volumes, and some are at work in the driver.
      deleted = made.filter((_, i) => i % 5 === 0);
      for (const { metadata } of deleted) await remove(metadata.name);
      kept.push(...made.filter((each) => !deleted.includes(each)));
      for (const { metadata } of kept) {
        const claim = await bed.readClaim(metadata.name);
        const protection = ['kubernetes.io/pvc-protection'];
        assert.deepEqual(claim?.metadata.finalizers, protection, 'it has no finalizer of ours');
      }
      sutler = await bed.start([LONG, '--worker-threads=10']);
      const areBound = async (): Promise<boolean> =>
        (await Promise.all(kept.map(({ metadata }) => bed.isBound(metadata.name)))).every(Boolean);
      await until(areBound, 'all claims that are left are Bound');
      await bed.createClaim('after');
      await until(() => bed.isBound('after'), 'so is a new one');
      const names = new Set(bed.driver.volumes().map(({ name }) => name));
      assert.equal(names.size, bed.driver.volumes().length, 'no claim has two volumes');
      for (const { metadata } of kept) assert.ok(names.has(`pvc-${metadata.uid}`));
    });

    it('says of a claim in doubt until when calls may be at work', async () => {
      const entries = await bed.readJournal();
      const waiting = entries.find(({ uid }) => kept.some(({ metadata }) => metadata.uid === uid));
      assert.ok(waiting, 'some had been begun');
      const { namespace = '', name } = waiting.claim.metadata;
      const shown = await command('explain', `${namespace}/${name}`);
      assert.match(shown, /a call may be at work in the driver until 20/);
      // The leader counts them every 5 s.
      const isTold = async () => /in doubt/.test(await command('status'));
      await until(isTold, 'status says so');
    });
  });
});
