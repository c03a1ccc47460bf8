import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { EventInput } from '#src/kube/events.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, secrets, volumes } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { kubeWith } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

describe('reconcileClaim', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const creates = () => rig.driver.calls.filter(({ method }) => method === 'CreateVolume');
  const deletes = () => rig.driver.calls.filter(({ method }) => method === 'DeleteVolume');
  const messages = () =>
    rig.events.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  const failOnce = (status: DriverStatus) => {
    let failed = false;
    rig.onCall = ({ method }) => {
      if (method !== 'CreateVolume' || failed) return undefined;
      failed = true;
      throw status;
    };
  };
  /** Makes the driver create the volume and never answer, so that the deadline passes. */
  async function loseAnswer(claim: Claim): Promise<void> {
    rig.onCall = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      return new Promise(() => undefined);
    };
    const outcome = await rig.provision(claim, { timeoutMs: 200 });
    assert.equal(outcome.kind, 'running');
    rig.onCall = () => undefined;
  }

  it('creates the volume, writes the PV and records an event on the claim (P-17)', async () => {
    const claim = await rig.claim();
    const outcome = await rig.provision(claim);
    assert.equal(outcome.kind, 'done');
    const volume = await rig.volumeOf(claim);
    assert.equal(volume?.spec.csi?.driver, 'sample.csi.sutler.dev');
    assert.equal(volume.spec.claimRef?.uid, claim.metadata.uid);
    assert.deepEqual(messages(), [
      `Normal ProvisioningSucceeded Successfully provisioned volume pvc-${claim.metadata.uid}`,
    ]);
  });

  it('sends one read and one write to the API server, besides its event', async () => {
    const counted: string[] = [];
    const claim = await rig.claim();
    await rig.provision(
      claim,
      kubeWith(rig, {
        get: (...args) => (counted.push('get'), rig.kube.get(...args)),
        list: (...args) => (counted.push('list'), rig.kube.list(...args)),
        create: (...args) => (counted.push('create'), rig.kube.create(...args)),
        patch: (...args) => (counted.push('patch'), rig.kube.patch(...args)),
        delete: (...args) => (counted.push('delete'), rig.kube.delete(...args)),
      }),
    );
    assert.deepEqual(counted, ['get', 'create']);
  });

  it('does nothing for a claim that is gone', async () => {
    const claim = await rig.claim();
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await rig.kube
      .patch(
        claims,
        { namespace: 'default', name: claim.metadata.name },
        { type: 'merge', body: { metadata: { finalizers: null } } },
      )
      .catch(() => undefined);
    assert.equal((await rig.provision(claim)).kind, 'done');
    assert.equal(creates().length, 0);
  });

  it('does nothing for another claim of the same name', async () => {
    const claim = await rig.claim();
    assert.equal(
      (await rig.provision({ ...claim, metadata: { ...claim.metadata, uid: 'other' } })).kind,
      'done',
    );
    assert.equal(creates().length, 0);
  });

  describe('when the driver refuses', () => {
    it('plans anew with the edited class', async () => {
      const claim = await rig.claim({ parameters: { type: 'a' } });
      failOnce(new DriverStatus(Code.Internal, 'no'));
      await rig.provision(claim);
      const cls = rig.parts.classOf(claim.spec.storageClassName ?? '');
      assert.ok(cls);
      await rig.provision(claim, { classOf: () => ({ ...cls, parameters: { type: 'b' } }) });
      assert.deepEqual(
        creates().map(({ request }) => (request as CreateVolumeRequest).parameters['type']),
        ['a', 'b'],
      );
    });
  });

  describe('after a call that gave no volume', () => {
    it('renews its warning with each run that fails', async () => {
      const claim = await rig.claim();
      const recorded: string[] = [];
      const events = { record: ({ message }: EventInput) => void recorded.push(message) };
      rig.onCall = () => {
        throw new DriverStatus(Code.Internal, 'no');
      };
      for (const _ of [1, 2]) await rig.provision(claim, { events });
      const message = 'rpc error: code = Internal desc = no';
      assert.deepEqual(recorded, [message, message]);
    });

    for (const [before, now] of [
      ['DeadlineExceeded', 'Aborted'],
      ['Unavailable', 'Unavailable'],
    ] as const) {
      it(`warns again when the driver’s message changes: ${now} after ${before}`, async () => {
        const claim = await rig.claim();
        for (const [code, details] of [
          [before, 'one'],
          [now, 'two'],
          [now, 'two'],
        ] as const) {
          rig.onCall = ({ method }) => {
            if (method === 'CreateVolume') throw new DriverStatus(Code[code], details);
          };
          await rig.provision(claim);
        }
        assert.deepEqual(messages(), [
          `Warning ProvisioningFailed rpc error: code = ${before} desc = one`,
          `Warning ProvisioningFailed rpc error: code = ${now} desc = two`,
        ]);
      });
    }

    it('records no success if the claim was deleted during a long call', async () => {
      const claim = await rig.claim();
      const ref = { namespace: 'default', name: claim.metadata.name };
      rig.onCall = async ({ method }) => {
        if (method !== 'CreateVolume') return;
        await rig.kube.patch(claims, ref, {
          type: 'merge',
          body: { metadata: { finalizers: null } },
        });
        await rig.kube.delete(claims, ref);
        aheadMs = 10_500;
      };
      let aheadMs = 0;
      const clock = { nowMs: () => Date.now() + aheadMs, sleep: systemClock.sleep };
      assert.equal((await rig.provision(claim, { clock })).kind, 'done');
      assert.ok(await rig.volumeOf(claim));
      assert.deepEqual(messages(), []);
    });
  });

  describe('when the PV can’t be written', () => {
    it('parks a PV with another handle: it is reported, and nothing is deleted', async () => {
      const claim = await rig.claim();
      await rig.provision(claim);
      const before = await rig.volumeOf(claim);
      rig.onCall = async ({ method, proceed }) => {
        if (method !== 'CreateVolume') return undefined;
        const { volume } = (await proceed()) as { volume: object };
        return { volume: { ...volume, volumeId: 'another' } };
      };
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'parked', outcome.kind);
      const { name, resourceVersion: seen } = before?.metadata ?? {};
      assert.deepEqual(outcome.until, [{ resource: 'persistentvolumes', name, seen }]);
      const exit = `sutler forget ${claim.metadata.uid} --driver-name=sample.csi.sutler.dev --why=REASON`;
      assert.ok(messages().at(-1)?.endsWith(exit), messages().at(-1));
      assert.deepEqual(await rig.volumeOf(claim), before);
      assert.deepEqual(deletes(), []);
    });

    it('reports a PV of that name that belongs to another claim, and leaves it alone', async () => {
      const claim = await rig.claim();
      const name = `pvc-${claim.metadata.uid}`;
      const spec = {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        csi: { driver: 'x', volumeHandle: 'y' },
      };
      await rig.kube.create<Volume>(volumes, undefined, {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name },
        spec,
      });
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.match(messages()[0] ?? '', /belongs to another claim/);
      assert.equal(deletes().length, 0);
    });
  });

  describe('secrets', () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const values = { data: { key: Buffer.from('very-secret').toString('base64') } };

    it('reach the driver but not Redis', async () => {
      const claim = await rig.claim({ name: 'with-secret', parameters });
      await rig.kube.create(secrets, 'default', {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: 'with-secret', namespace: 'default' },
        ...values,
      });
      await loseAnswer(claim);
      const [first] = creates();
      assert.ok(first);
      assert.deepEqual((first.request as CreateVolumeRequest).secrets, { key: 'very-secret' });
      const dump: unknown[] = [];
      for (const key of await rig.redis.keys('*'))
        dump.push(await rig.redis.dump(key), await rig.redis.hgetall(key).catch(() => undefined));
      assert.ok(dump.length > 0);
      const text = JSON.stringify(dump);
      assert.ok(!text.includes('very-secret') && !text.includes(values.data.key));
    });

    it('are removed from messages of the driver that quote them', async () => {
      const claim = await rig.claim({ name: 'quoted-secret', parameters });
      const metadata = { name: 'quoted-secret', namespace: 'default' };
      await rig.kube.create(secrets, 'default', {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata,
        ...values,
      });
      failOnce(new DriverStatus(Code.Internal, 'can not log in with very-secret'));
      const outcome = await rig.provision(claim);
      assert.ok(
        outcome.kind === 'retry' && outcome.reason.endsWith('can not log in with ***stripped***'),
      );
      assert.ok(!JSON.stringify(rig.events).includes('very-secret'));
    });
  });

  it('sends nothing while Redis is down', async () => {
    const claim = await rig.claim();
    const { plain } = rig.jobs;
    const { kube } = kubeWith(rig, {
      get: (...args) => (plain.disconnect(), rig.kube.get(...args)),
    });
    assert.equal((await rig.provision(claim, { kube })).kind, 'later');
    await plain.connect();
    assert.equal(creates().length, 0);
  });
});
