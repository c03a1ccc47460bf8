import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { CreateVolumeRequest, DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { EventInput } from '#src/kube/event-correlation.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, secrets, volumes } from '#src/kube/resources.ts';
import { forgetRecord } from '#src/records/forget.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { createLogger } from '#src/runtime/log.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { kubeWith } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';
import { until } from '../../harness/until.ts';

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
  async function deleteClaim({ metadata: { name } }: Claim): Promise<void> {
    const ref = { namespace: 'default', name };
    const body = { metadata: { finalizers: null } };
    await rig.kube.patch(claims, ref, { type: 'merge', body });
    await rig.kube.delete(claims, ref);
  }
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
    assert.equal((await rig.record(claim.metadata.uid))['state'], 'stored');
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

  describe('after an ambiguous call', () => {
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

    it('accepts a refusal with a long message, and sends the next call', async () => {
      const claim = await rig.claim();
      const details = 'x'.repeat(50_000);
      rig.onCall = ({ method }) => {
        if (method === 'CreateVolume') throw new DriverStatus(Code.Internal, details);
      };
      for (const _ of [1, 2, 3]) {
        const outcome = await rig.provision(claim);
        assert.ok(outcome.kind === 'retry' && outcome.isAbsent === true, outcome.kind);
        const shown = `${details.slice(0, 800)}… (50000 characters)`;
        assert.equal(outcome.reason, `rpc error: code = Internal desc = ${shown}`);
      }
      rig.onCall = () => undefined;
      assert.equal((await rig.provision(claim)).kind, 'done');
    });

    it('continues after a message that is too long for the connection', async () => {
      const claim = await rig.claim();
      rig.onCall = ({ method }) => {
        if (method === 'CreateVolume') throw new DriverStatus(Code.Internal, 'x'.repeat(200_000));
      };
      await rig.provision(claim, { timeoutMs: 1_000 });
      rig.onCall = () => undefined;
      await until(
        async () => (await rig.provision(claim)).kind === 'done',
        'the gateway has another connection',
        50_000,
      );
    });

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

    it('records success if only the answer to writing the PV was lost', async () => {
      const claim = await rig.claim();
      const create: typeof rig.kube.create = async (resource, namespace, object) => {
        await rig.kube.create(resource, namespace, object);
        throw new KubeError({
          code: 504,
          reason: 'Timeout',
          serverMessage: 'too late',
          request: 'POST',
        });
      };
      assert.equal((await rig.provision(claim, { kube: { ...rig.kube, create } })).kind, 'retry');
      rig.events.length = 0;
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.deepEqual(messages(), [
        `Normal ProvisioningSucceeded Successfully provisioned volume pvc-${claim.metadata.uid}`,
      ]);
      assert.equal(creates().length, 1);
    });

    /** Provisions a claim with a worker that dies between writing the PV and closing the record,
     * and ends its ownership. */
    async function provisionAndDie(change: Parameters<Rig['claim']>[0] = {}): Promise<Claim> {
      const claim = await rig.claim(change);
      class DyingRecords extends VolumeRecords {
        override closeStored(): Promise<void> {
          return Promise.resolve();
        }
      }
      const records = new DyingRecords({
        redis: rig.redis,
        prefix: 'csi',
        driver: 'sample.csi.sutler.dev',
        ownMs: 60_000,
        settleMs: 60_000,
      });
      await records.seenDataEpoch();
      await rig.provision(claim, { records });
      assert.ok(await rig.volumeOf(claim));
      await changeRecord(claim, 'until', String(Date.now() - 1));
      return claim;
    }
    const changeRecord = ({ metadata }: Claim, field: string, value: string) =>
      rig.redis.hset(`{csi}:volume:sample.csi.sutler.dev:${metadata.uid}`, field, value);

    it('sends no second call if the PV exists already, and closes once settled', async () => {
      const claim = await provisionAndDie();
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'later' && outcome.reason.includes('may still be at work'));
      await changeRecord(claim, 'call', '1');
      const lines: string[] = [];
      const write = (line: string): void => void lines.push(line);
      const log = createLogger({ name: 'jobs', verbosity: 0, format: 'text', write });
      assert.equal((await rig.provision(claim, { log })).kind, 'done');
      assert.match(lines.join(''), /^\S+ INFO jobs: volume provisioned .*handle=.*\n$/);
      assert.equal(creates().length, 1);
      const record = await rig.record(claim.metadata.uid);
      assert.deepEqual([record['state'], record['amb']], ['stored', '0']);
    });

    it('sends one although the PV exists if another provisioner may have led', async () => {
      const claim = await provisionAndDie();
      assert.equal((await rig.provision(claim)).kind, 'later');
      await changeRecord(claim, 'call', '1');
      await changeRecord(claim, 'term', 'an earlier one');
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.equal(creates().length, 2);
      assert.equal((await rig.record(claim.metadata.uid))['state'], 'stored');
    });

    describe('whose volume the driver now names by another handle', () => {
      /** As after an upgrade of the driver. */
      const respell = () => {
        rig.onCall = async ({ method, proceed }) => {
          if (method !== 'CreateVolume') return undefined;
          const { volume } = (await proceed()) as { volume: { volumeId: string } };
          return { volume: { ...volume, volumeId: `zone-1/${volume.volumeId}` } };
        };
      };
      /** Provisions again, twice, and asserts that the volume and its record are kept. */
      async function assertKept(claim: Claim): Promise<void> {
        const handle = (await rig.volumeOf(claim))?.spec.csi?.volumeHandle;
        const outcome = await rig.provision(claim);
        assert.ok(outcome.kind === 'parked' && outcome.reason.includes(`zone-1/${handle}`));
        assert.deepEqual(deletes(), []);
        assert.equal((await rig.provision(claim)).kind, 'parked');
        assert.deepEqual(deletes(), []);
        assert.equal(creates().length, 2, 'the answer is kept, so the driver is not called again');
        const record = await rig.record(claim.metadata.uid);
        assert.deepEqual([record['state'], record['code']], ['creating', 'DuplicateVolume']);
      }
      const exit = ({ metadata }: Claim) =>
        `run: sutler forget ${metadata.uid} --driver-name=sample.csi.sutler.dev --why=`;

      it('keeps a Bound PV’s volume though another provisioner may have led', async () => {
        const claim = await provisionAndDie();
        await changeRecord(claim, 'term', 'an earlier one');
        await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Bound');
        await rig.provision(claim);
        await changeRecord(claim, 'call', '1');
        respell();
        rig.events.length = 0;
        await assertKept(claim);
        const [warning, ...more] = rig.events;
        assert.equal(warning?.regarding.kind, 'PersistentVolumeClaim');
        assert.ok(warning.message.includes(exit(claim)), warning.message);
        assert.deepEqual(more, []);
      });

      it('keeps a Retain PV’s volume though its claim is deleted, and warns on the PV', async () => {
        const claim = await provisionAndDie({ reclaimPolicy: 'Retain' });
        await deleteClaim(claim);
        await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Released');
        respell();
        rig.events.length = 0;
        await assertKept(claim);
        const [warning, ...more] = rig.events;
        assert.equal(warning?.regarding.kind, 'PersistentVolume');
        assert.ok(warning.message.includes(exit(claim)), warning.message);
        assert.deepEqual(more, []);
      });

      it('has the volume of a Released PV deleted first, then the one that it names now', async () => {
        const claim = await provisionAndDie();
        const { uid } = claim.metadata;
        await deleteClaim(claim);
        const volume = await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Released');
        respell();
        rig.events.length = 0;
        assert.equal((await rig.provision(claim)).kind, 'parked');
        assert.deepEqual([deletes(), rig.events], [[], []]);
        assert.equal((await rig.remove(volume)).kind, 'done');
        assert.equal((await rig.record(uid))['state'], 'creating', 'the answer is kept');
        // As the controller that protects PVs does once no claim uses one.
        const body = { metadata: { finalizers: null } };
        await rig.kube.patch(volumes, volume.metadata, { type: 'merge', body });
        assert.equal(await rig.volumeOf(claim), undefined);
        assert.equal((await rig.provision(claim)).kind, 'done');
        const respelled = await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Released');
        await changeRecord(claim, 'call', '1');
        assert.equal((await rig.remove(respelled)).kind, 'done');
        const handle = volume.spec.csi?.volumeHandle;
        const deleted = deletes().map(({ request }) => (request as DeleteVolumeRequest).volumeId);
        assert.deepEqual(deleted, [handle, `zone-1/${handle}`]);
        assert.deepEqual([creates().length, (await rig.record(uid))['state']], [2, 'gone']);
        assert.ok(rig.driver.volumes().every(({ name }) => name !== `pvc-${uid}`));
      });

      it('keeps the volume of a Released PV whose claim lives, for an operator', async () => {
        const claim = await provisionAndDie();
        const volume = await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Released');
        respell();
        await assertKept(claim);
        assert.equal((await rig.remove(volume)).kind, 'parked');
        assert.deepEqual(deletes(), []);
        const place = { prefix: 'csi', driver: 'sample.csi.sutler.dev', id: claim.metadata.uid };
        await forgetRecord(rig.redis, place, { by: 'test', why: 'compared', atMs: Date.now() });
        assert.equal((await rig.remove(volume)).kind, 'done');
        assert.equal(deletes().length, 1);
      });
    });
  });

  describe('when nothing was sent', () => {
    it('reverts the record and is not counted as a failure', async () => {
      const claim = await rig.claim();
      const { csi } = rig.parts;
      const outcome = await rig.provision(claim, {
        csi: {
          ...csi,
          deleteVolume: csi.deleteVolume.bind(csi),
          createVolume: (request, settings) =>
            csi.createVolume(request, { ...settings, notAfterMs: 1 }),
        },
      });
      assert.equal(outcome.kind, 'running');
      assert.deepEqual(await rig.record(claim.metadata.uid), {});
      assert.equal(creates().length, 0);
    });
  });

  describe('when the PV can’t be written', () => {
    it('takes an existing PV with our handle and claim for success', async () => {
      const claim = await rig.claim();
      const twice = kubeWith(rig, {
        async create(...args) {
          await rig.kube.create(...args);
          return rig.kube.create(...args);
        },
      });
      assert.equal((await rig.provision(claim, twice)).kind, 'done');
      assert.equal((await rig.record(claim.metadata.uid))['state'], 'stored');
    });

    /** A provisioned claim for which the driver creates a second volume with another handle. */
    async function createDuplicate(change: Parameters<Rig['claim']>[0] = {}): Promise<Claim> {
      const claim = await rig.claim(change);
      await rig.provision(claim);
      await rig.redis.del(`{csi}:volume:sample.csi.sutler.dev:${claim.metadata.uid}`);
      rig.onCall = async ({ method, proceed }) =>
        method === 'CreateVolume'
          ? {
              volume: {
                ...((await proceed()) as { volume: object }).volume,
                volumeId: 'duplicate',
              },
            }
          : undefined;
      return claim;
    }
    const deletedHandles = () =>
      deletes().map(({ request }) => (request as unknown as { volumeId: string }).volumeId);

    it('deletes a duplicate volume if the claim’s PV has another handle', async () => {
      const claim = await createDuplicate();
      const volume = await rig.volumeOf(claim);
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.deepEqual(deletedHandles(), ['duplicate']);
      assert.deepEqual((await rig.volumeOf(claim))?.spec.csi, volume?.spec.csi);
    });

    it('deletes a duplicate volume only within two seconds of reading the PV', async () => {
      const claim = await createDuplicate();
      // As if the machine had stood still for three seconds after the read.
      const clock = { ...systemClock, nowMs: () => Date.now() - 3_000 };
      assert.equal((await rig.provision(claim, { clock })).kind, 'retry');
      assert.deepEqual(deletedHandles(), []);
      // A later run does not know any more that this was the driver's first answer.
      assert.equal((await rig.provision(claim)).kind, 'parked');
      assert.deepEqual(deletedHandles(), []);
    });

    it('keeps what looks like a duplicate volume if the claim’s PV is Bound', async () => {
      const claim = await createDuplicate();
      await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Bound');
      assert.equal((await rig.provision(claim)).kind, 'parked');
      assert.deepEqual(deletedHandles(), []);
    });

    it('keeps what looks like a duplicate volume if the claim’s PV is to be retained', async () => {
      const claim = await createDuplicate({ reclaimPolicy: 'Retain' });
      assert.equal((await rig.provision(claim)).kind, 'parked');
      assert.deepEqual(deletedHandles(), []);
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

  it('calls the driver in only one of two runs at once', async () => {
    const claim = await rig.claim();
    const outcomes = await Promise.all([rig.provision(claim), rig.provision(claim)]);
    assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ['done', 'running']);
    assert.equal(creates().length, 1);
  });

  it('sends nothing while Redis is down', async () => {
    const claim = await rig.claim();
    rig.redis.disconnect();
    assert.equal((await rig.provision(claim)).kind, 'later');
    await rig.redis.connect();
    assert.equal(creates().length, 0);
  });
});
