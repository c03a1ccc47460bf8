import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CallVerdict } from '#src/election/lease-view.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, leases, secrets } from '#src/kube/resources.ts';
import { historyKeys } from '#src/queue/history.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { DRIVER, keyOf, useRig, type Rig, WITH_SECRET } from '../rig.ts';

const D_MS = 60_000;

/** How long until the next run. */
function delayOf(outcome: Outcome): number {
  assert.equal(outcome.kind, 'later', JSON.stringify(outcome));
  return outcome.kind === 'later' ? (outcome.delayMs ?? 0) : 0;
}

describe('a creation', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const creations = () => rig.callsOf('CreateVolume').length;
  const untilOf = async (claim: Claim) => (await rig.jobs.job(keyOf(claim)))['until'];
  /** A claim whose call had an unknown end. */
  async function begun(change: Parameters<Rig['claim']>[0] = {}): Promise<Claim> {
    const claim = await rig.claim(change);
    await rig.loseAnswer(claim);
    return claim;
  }
  /** The claim is gone after a call of unknown end, or with `isOver` long after it. */
  async function goneAfterCall(o: { readonly isOver?: boolean } = {}): Promise<Claim> {
    const claim = await begun();
    await rig.removeClaim(claim);
    if (o.isOver === true) await rig.endDoubt(claim);
    return claim;
  }
  /** The driver's calls, each changed before it is sent. */
  const csiWith = (
    change: (settings: Parameters<Dependencies['csi']['createVolume']>[1]) => typeof settings,
  ): Pick<Dependencies, 'csi'> => {
    const { csi } = rig.parts;
    return {
      csi: {
        deleteVolume: (...args) => csi.deleteVolume(...args),
        getCapacity: (...args) => csi.getCapacity(...args),
        createVolume: (request, settings) => csi.createVolume(request, change(settings)),
      },
    };
  };
  const tooLate = () => csiWith((settings) => ({ ...settings, notAfterMs: 1 }));

  describe('of a claim that is gone', () => {
    it('ends without a call if none was begun', async () => {
      const claim = await rig.claim();
      await rig.removeClaim(claim);
      assert.deepEqual(await rig.provision(claim), { kind: 'done', note: 'the claim is gone' });
      assert.equal(creations(), 0);
    });

    it('is planned from the journal if a call was begun, and its PV is written (P-24, R-38)', async () => {
      const claim = await goneAfterCall({ isOver: true });
      assert.equal((await rig.provision(claim)).kind, 'done');
      const [first, second] = rig.callsOf('CreateVolume');
      assert.deepEqual(second?.request, first?.request);
      assert.equal((await rig.volumeOf(claim))?.spec.claimRef?.uid, claim.metadata.uid);
    });

    const annotations = { 'volume.kubernetes.io/storage-provisioner': 'other.example' };
    for (const [title, body] of [
      ['another provisioner’s by now', { metadata: { annotations } }],
      ['bound to another PV', { spec: { volumeName: 'another' } }],
    ] as const)
      it(`is planned from the journal, too, if the claim is ${title}`, async () => {
        const claim = await begun();
        await rig.kube.patch(claims, { ...claim.metadata }, { type: 'merge', body });
        await rig.provision(claim);
        assert.ok(await rig.volumeOf(claim));
      });

    it('ends after a refusal that proves that there is no volume', async () => {
      const claim = await goneAfterCall({ isOver: true });
      rig.failWith('Internal');
      const note = 'the driver refused, and the claim is gone';
      assert.deepEqual(await rig.provision(claim), { kind: 'done', note });
    });

    it('does not end after a refusal while a call may be at work', async () => {
      const claim = await goneAfterCall();
      rig.failWith('Internal');
      assert.equal((await rig.provision(claim)).kind, 'retry');
    });

    it('does not end after a call of unknown end (P-22, R-39)', async () => {
      const claim = await goneAfterCall({ isOver: true });
      rig.failWith('Unavailable', 'soon');
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.ok(((await rig.doubtMs(claim)) ?? 0) > 0);
    });

    const forget = ({ metadata }: Claim) =>
      `sutler forget ${metadata.uid} --driver-name=sample.csi.sutler.dev --why=REASON`;

    it('is parked, with the command that ends it, if its secret is gone', async () => {
      const claim = await rig.claim({ parameters: WITH_SECRET });
      await rig.secret(claim.metadata.name, {});
      await rig.loseAnswer(claim);
      await rig.removeClaim(claim);
      await rig.kube.delete(secrets, { namespace: 'default', name: claim.metadata.name });
      await rig.endDoubt(claim);
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'parked' && outcome.reason.includes(forget(claim)));
    });

    it('is parked, with the command that ends it, if neither journal nor cluster has its class', async () => {
      const claim = await goneAfterCall({ isOver: true });
      const withoutClass = rig.kubeWith({
        async get<T>(...args: Parameters<Dependencies['kube']['get']>) {
          const found = await rig.kube.get<{ metadata: { annotations: object } }>(...args);
          if (found === undefined || args[0].plural !== leases.plural) return found as T;
          const annotations = Object.fromEntries(
            Object.entries(found.metadata.annotations).filter(([key]) => !key.startsWith('class.')),
          );
          return { ...found, metadata: { ...found.metadata, annotations } } as T;
        },
      });
      const outcome = await rig.provision(claim, { ...withoutClass, classOf: () => undefined });
      assert.ok(outcome.kind === 'parked' && outcome.reason.includes(forget(claim)));
      const name = claim.spec.storageClassName ?? '';
      assert.match(outcome.reason, new RegExp(`storageClass "${name}" not found`));
      assert.deepEqual(outcome.until, [{ resource: 'storageclasses', name, seen: '' }]);
      assert.equal(creations(), 1);
    });
  });

  it('that was begun writes its PV in doubt too, and ends only when that is over', async () => {
    const claim = await begun();
    const delayMs = delayOf(await rig.provision(claim));
    assert.ok(delayMs > D_MS - 10_000 && delayMs <= D_MS, String(delayMs));
    assert.ok(await rig.volumeOf(claim));
  });

  it('that was begun has its volume deleted only after it has ended', async () => {
    const claim = await begun();
    await rig.provision(claim);
    const volume = await rig.volumeOf(claim);
    assert.ok(volume);
    await assert.rejects(rig.remove(await rig.setPhase(volume, 'Released')), /is not over/);
  });

  describe('whose call', () => {
    it('the driver refuses is as if it had never been begun (P-18)', async () => {
      const claim = await rig.claim();
      rig.failWith('Internal');
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await rig.doubtMs(claim), undefined);
    });

    it('the driver refuses leaves the doubt of an earlier call as it was (P-21)', async () => {
      const claim = await begun();
      const until = await untilOf(claim);
      rig.failWith('Internal');
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await untilOf(claim), until);
    });

    it('ends unknown may be at work for the whole time (P-19)', async () => {
      const leftMs = (await rig.doubtMs(await begun())) ?? 0;
      assert.ok(leftMs > D_MS - 10_000 && leftMs <= D_MS, String(leftMs));
    });

    it('was not forwarded is as if it had never been begun (P-20)', async () => {
      const claim = await rig.claim();
      assert.equal((await rig.provision(claim, tooLate())).kind, 'running');
      assert.equal(await rig.doubtMs(claim), undefined);
      assert.equal(creations(), 0);
    });

    it('was not forwarded leaves the doubt of an earlier call as it was (P-23)', async () => {
      const claim = await begun();
      const until = await untilOf(claim);
      assert.equal((await rig.provision(claim, tooLate())).kind, 'running');
      assert.equal(await untilOf(claim), until);
    });

    it('took too long writes no PV', async () => {
      const claim = await rig.claim();
      const outcome = await rig.provision(claim, { doubtMs: 10_000 });
      assert.ok(outcome.kind === 'later' && outcome.reason.includes('too late'), outcome.kind);
      assert.equal(await rig.volumeOf(claim), undefined);
      await rig.provision(claim);
      assert.ok(await rig.volumeOf(claim));
    });
  });

  it('is sent within ten seconds of its mark, and no later than the view of the Lease allows', async () => {
    const inMs: number[] = [];
    const watched = csiWith((settings) => {
      inMs.push((settings.notAfterMs ?? Infinity) - Date.now());
      return settings;
    });
    for (const leaseMs of [60_000, 3_000]) {
      const judge = () => ({ kind: 'may', untilMs: performance.now() + leaseMs }) as const;
      await rig.provision(await rig.claim(), { ...watched, lease: { judge, pause: undefined } });
    }
    const [first = Infinity, second = Infinity] = inMs;
    assert.ok(first <= 10_000 && first > 5_000 && second <= 3_000, inMs.join());
  });

  describe('calls nothing', () => {
    const during = (act: (claim: Claim) => Promise<unknown>, claim: Claim) =>
      rig.kubeWith({
        async get(...args) {
          await act(claim);
          return rig.kube.get(...args);
        },
      });

    it('if the journal does not know of it', async () => {
      const outcome = await rig.provision(await rig.claim(), {}, { isUnnoted: true });
      const note = 'the leader adds another job, with a journal entry';
      assert.deepEqual(outcome, { kind: 'done', note });
      assert.equal(creations(), 0);
    });

    it('if another run has its job by now', async () => {
      const claim = await rig.claim();
      const kube = during(() => rig.jobs.loseLock(keyOf(claim)), claim);
      assert.equal((await rig.provision(claim, kube)).kind, 'later');
      assert.equal(creations(), 0);
    });

    it('if it is of an earlier life of Redis', async () => {
      const { jobsHistory } = historyKeys({ prefix: 'csi', driver: DRIVER });
      const claim = await rig.claim();
      const kube = during(() => rig.redis.set(jobsHistory, 'another'), claim);
      const outcome = await rig.provision(claim, kube);
      assert.ok(outcome.kind === 'later' && outcome.reason.startsWith('Redis has lost its data'));
      assert.equal(creations(), 0);
      await rig.jobs.begin();
    });
  });

  describe('while nothing new may be begun', () => {
    const pause = 'sutler is drained by somebody';
    const judge: Dependencies['lease']['judge'] = (_, isBegun): CallVerdict =>
      isBegun
        ? { kind: 'may', untilMs: performance.now() + 10_000 }
        : { kind: 'paused', reason: pause };
    const lease = { judge, pause };

    it('is not begun, and waits for the end of that', async () => {
      const claim = await rig.claim();
      const outcome = await rig.provision(claim, { lease });
      assert.ok(outcome.kind === 'later');
      assert.deepEqual(outcome.until, [{ resource: 'newwork', name: '*', seen: 'paused' }]);
      assert.match(outcome.reason, /sutler is drained by somebody/);
      assert.deepEqual([creations(), rig.messages()], [0, []]);
      assert.equal(await rig.doubtMs(claim), undefined);
    });

    it('is finished if it was begun', async () => {
      const claim = await begun();
      await rig.provision(claim, { lease });
      assert.ok(await rig.volumeOf(claim));
    });
  });
});
