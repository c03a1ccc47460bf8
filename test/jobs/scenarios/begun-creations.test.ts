import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { CallVerdict } from '#src/election/lease-view.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, leases, secrets } from '#src/kube/resources.ts';
import { historyKeys } from '#src/queue/history.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  callsOf,
  claimNow,
  endFaults,
  failWith,
  loseAnswer,
  messagesOf,
  removeClaim,
} from '../claim-cases.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { DRIVER, keyOf, openRig, type Rig } from '../rig.ts';

const D_MS = 60_000;
const REFUSAL = new DriverStatus(Code.Internal, 'no');

/** How long until the next run. */
function delayOf(outcome: Outcome): number {
  assert.equal(outcome.kind, 'later', JSON.stringify(outcome));
  return outcome.kind === 'later' ? (outcome.delayMs ?? 0) : 0;
}

describe('a creation', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const creations = () => callsOf(rig, 'CreateVolume').length;
  /** The claim is gone after a call of unknown end, or with `isOver` long after it. */
  async function goneAfterCall(o: { readonly isOver?: boolean } = {}): Promise<Claim> {
    const claim = await rig.claim();
    await loseAnswer(rig, claim);
    await removeClaim(rig, claim);
    if (o.isOver === true) await rig.endDoubt(claim);
    return claim;
  }

  describe('of a claim that is gone', () => {
    it('ends without a call if none was begun', async () => {
      const claim = await rig.claim();
      await removeClaim(rig, claim);
      assert.deepEqual(await rig.provision(claim), { kind: 'done', note: 'the claim is gone' });
      assert.equal(creations(), 0);
    });

    it('is planned from the journal if a call was begun, and its PV is written (P-24, R-38)', async () => {
      const claim = await goneAfterCall({ isOver: true });
      assert.equal((await rig.provision(claim)).kind, 'done');
      const [first, second] = callsOf(rig, 'CreateVolume');
      assert.deepEqual(second?.request, first?.request);
      assert.equal((await rig.volumeOf(claim))?.spec.claimRef?.uid, claim.metadata.uid);
    });

    it('is planned from the journal for a leader that knows of no call, too', async () => {
      const claim = await rig.claim();
      await removeClaim(rig, claim);
      assert.equal(delayOf(await rig.provision(claim, {}, { doubtMs: D_MS })), D_MS);
      assert.ok(await rig.volumeOf(claim));
    });

    it('is planned from the journal if the claim is another provisioner’s by now', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      const annotations = { 'volume.kubernetes.io/storage-provisioner': 'other.example' };
      const body = { metadata: { annotations } };
      await rig.kube.patch(claims, { ...claim.metadata }, { type: 'merge', body });
      await rig.provision(claim);
      assert.ok(await rig.volumeOf(claim));
    });

    it('is planned from the journal if the claim was bound to another PV', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      const body = { spec: { volumeName: 'another' } };
      await rig.kube.patch(claims, { ...claim.metadata }, { type: 'merge', body });
      await rig.provision(claim);
      assert.ok(await rig.volumeOf(claim));
    });

    it('ends after a refusal that proves that there is no volume', async () => {
      const claim = await goneAfterCall({ isOver: true });
      failWith(rig, REFUSAL);
      const note = 'the driver refused, and the claim is gone';
      assert.deepEqual(await rig.provision(claim), { kind: 'done', note });
    });

    it('does not end after a refusal while a call may be at work', async () => {
      const claim = await goneAfterCall();
      failWith(rig, REFUSAL);
      assert.equal((await rig.provision(claim)).kind, 'retry');
    });

    it('does not end after a call of unknown end (P-22, R-39)', async () => {
      const claim = await goneAfterCall({ isOver: true });
      failWith(rig, new DriverStatus(Code.Unavailable, 'soon'));
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.ok(((await rig.doubtMs(claim)) ?? 0) > 0);
    });

    const forget = ({ metadata }: Claim) =>
      `sutler forget ${metadata.uid} --driver-name=sample.csi.sutler.dev --why=REASON`;

    it('is parked, with the command that ends it, if its secret is gone', async () => {
      const name = 'gone-with-claim';
      const metadata = { name, namespace: 'default' };
      const secret = { apiVersion: 'v1', kind: 'Secret', metadata, data: {} };
      await rig.kube.create(secrets, 'default', secret);
      const claim = await rig.claim({
        parameters: {
          'csi.storage.k8s.io/provisioner-secret-name': name,
          'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
        },
      });
      await loseAnswer(rig, claim);
      await removeClaim(rig, claim);
      await rig.kube.delete(secrets, metadata);
      await rig.endDoubt(claim);
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'parked' && outcome.reason.includes(forget(claim)));
    });

    it('is parked, with the command that ends it, if neither journal nor cluster has its class', async () => {
      const claim = await goneAfterCall({ isOver: true });
      const { namespace } = rig.parts.journal;
      const withoutClass = kubeWith(rig, {
        async get<T>(...args: Parameters<Dependencies['kube']['get']>) {
          const found = await rig.kube.get<{ metadata: { annotations: object } }>(...args);
          if (found === undefined || args[0].plural !== leases.plural) return found as T;
          assert.equal(args[1].namespace, namespace);
          const kept = Object.entries(found.metadata.annotations).filter(
            ([key]) => !key.startsWith('class.'),
          );
          const metadata = { ...found.metadata, annotations: Object.fromEntries(kept) };
          return { ...found, metadata } as T;
        },
      });
      const outcome = await rig.provision(claim, { ...withoutClass, classOf: () => undefined });
      assert.ok(outcome.kind === 'parked' && outcome.reason.includes(forget(claim)));
      const name = claim.spec.storageClassName ?? '';
      assert.match(outcome.reason, new RegExp(`storageClass "${name}" not found`));
      assert.deepEqual(outcome.until, [{ resource: 'storageclasses', name, seen: '' }]);
      assert.equal(creations(), 1);
    });

    it('waits no longer than until its doubt is over if it can’t be planned', async () => {
      const claim = await goneAfterCall();
      const facts = () => ({ ...rig.parts.facts(), controllerCapabilities: new Set<string>() });
      const outcome = await rig.provision(claim, { facts });
      assert.ok(outcome.kind !== 'done', JSON.stringify(outcome));
    });
  });

  describe('that was begun', () => {
    it('finds the PV that an earlier run has written, and sends no call', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      await rig.provision(claim);
      await rig.endDoubt(claim);
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'done' && outcome.note?.startsWith('volume pvc-'));
      assert.equal(creations(), 2);
    });

    it('writes its PV in doubt too, and ends only when that is over', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      const delayMs = delayOf(await rig.provision(claim));
      assert.ok(delayMs > D_MS - 10_000 && delayMs <= D_MS, String(delayMs));
      assert.ok(await rig.volumeOf(claim));
    });

    it('has its volume deleted only after it has ended', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      await rig.provision(claim);
      const volume = await rig.volumeOf(claim);
      assert.ok(volume);
      await assert.rejects(rig.remove(await rig.setPhase(volume, 'Released')), /is not over/);
    });
  });

  describe('whose call', () => {
    it('the driver refuses is as if it had never been begun (P-18)', async () => {
      const claim = await rig.claim();
      failWith(rig, REFUSAL);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await rig.doubtMs(claim), undefined);
    });

    it('the driver refuses leaves the doubt of an earlier call as it was (P-21)', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      const { until } = await rig.jobs.job(keyOf(claim));
      failWith(rig, REFUSAL);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal((await rig.jobs.job(keyOf(claim)))['until'], until);
    });

    it('ends unknown may be at work for the whole time (P-19)', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      const leftMs = (await rig.doubtMs(claim)) ?? 0;
      assert.ok(leftMs > D_MS - 10_000 && leftMs <= D_MS, String(leftMs));
    });

    it('was not forwarded is as if it had never been begun (P-20)', async () => {
      const claim = await rig.claim();
      const { csi } = rig.parts;
      const late: Dependencies['csi'] = {
        deleteVolume: (...args) => csi.deleteVolume(...args),
        getCapacity: (...args) => csi.getCapacity(...args),
        createVolume: (request, settings) =>
          csi.createVolume(request, { ...settings, notAfterMs: 1 }),
      };
      assert.equal((await rig.provision(claim, { csi: late })).kind, 'running');
      assert.equal(await rig.doubtMs(claim), undefined);
      assert.equal(creations(), 0);
    });
  });

  it('whose call was not forwarded leaves the doubt of an earlier call as it was (P-23)', async () => {
    const claim = await rig.claim();
    await loseAnswer(rig, claim);
    const { until } = await rig.jobs.job(keyOf(claim));
    const { csi } = rig.parts;
    const late: Dependencies['csi'] = {
      deleteVolume: (...args) => csi.deleteVolume(...args),
      getCapacity: (...args) => csi.getCapacity(...args),
      createVolume: (request, settings) =>
        csi.createVolume(request, { ...settings, notAfterMs: 1 }),
    };
    assert.equal((await rig.provision(claim, { csi: late })).kind, 'running');
    assert.equal((await rig.jobs.job(keyOf(claim)))['until'], until);
  });

  it('is sent within ten seconds of its mark, and no later than the view of the Lease allows', async () => {
    const { csi } = rig.parts;
    const inMs: number[] = [];
    const watched: Dependencies['csi'] = {
      deleteVolume: (...args) => csi.deleteVolume(...args),
      getCapacity: (...args) => csi.getCapacity(...args),
      createVolume: (request, settings) => {
        inMs.push((settings.notAfterMs ?? Infinity) - Date.now());
        return csi.createVolume(request, settings);
      },
    };
    for (const leaseMs of [60_000, 3_000]) {
      const judge = () => ({ kind: 'may', untilMs: performance.now() + leaseMs }) as const;
      const lease = { judge, pause: undefined };
      await rig.provision(await rig.claim(), { csi: watched, lease });
    }
    const [first = Infinity, second = Infinity] = inMs;
    assert.ok(first <= 10_000 && first > 5_000 && second <= 3_000, inMs.join());
  });

  it('of which the journal does not know calls nothing', async () => {
    const claim = await rig.claim();
    const outcome = await rig.provision(claim, {}, { isUnnoted: true });
    const note = 'it gets a job of which the journal knows';
    assert.deepEqual(outcome, { kind: 'done', note });
    assert.equal(creations(), 0);
  });

  it('whose job another run has by now calls nothing', async () => {
    const claim = await rig.claim();
    const { kube } = kubeWith(rig, {
      async get(...args) {
        await rig.jobs.loseLock(keyOf(claim));
        return rig.kube.get(...args);
      },
    });
    const outcome = await rig.provision(claim, { kube });
    assert.equal(outcome.kind, 'later');
    assert.equal(creations(), 0);
  });

  it('of an earlier life of Redis calls nothing', async () => {
    const claim = await rig.claim();
    const { kube } = kubeWith(rig, {
      async get(...args) {
        const { jobsHistory } = historyKeys({ prefix: 'csi', driver: DRIVER });
        await rig.redis.set(jobsHistory, 'another');
        return rig.kube.get(...args);
      },
    });
    const outcome = await rig.provision(claim, { kube });
    assert.ok(outcome.kind === 'later' && outcome.reason.startsWith('Redis has lost its data'));
    assert.equal(creations(), 0);
    await rig.jobs.begin();
  });

  describe('while nothing new may be begun', () => {
    const paused: Dependencies['lease'] = {
      judge: (_, isBegun): CallVerdict =>
        isBegun
          ? { kind: 'may', untilMs: performance.now() + 10_000 }
          : { kind: 'paused', reason: 'sutler is drained by somebody' },
      pause: 'sutler is drained by somebody',
    };

    it('is not begun, and waits for the end of that', async () => {
      const claim = await rig.claim();
      const outcome = await rig.provision(claim, { lease: paused });
      assert.ok(outcome.kind === 'later');
      assert.deepEqual(outcome.until, [{ resource: 'newwork', name: '*', seen: 'paused' }]);
      assert.match(outcome.reason, /sutler is drained by somebody/);
      assert.deepEqual([creations(), messagesOf(rig)], [0, []]);
      assert.equal(await rig.doubtMs(claim), undefined);
    });

    it('is not begun after runs that have called nothing', async () => {
      const claim = await rig.claim();
      await rig.provision(claim, { lease: paused });
      await rig.provision(claim, { lease: paused });
      assert.equal(creations(), 0);
    });

    it('is finished if it was begun', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      await rig.provision(claim, { lease: paused });
      assert.ok(await rig.volumeOf(claim));
    });
  });

  it('waits while the Lease names another Redis, and calls nothing', async () => {
    const claim = await rig.claim();
    const reason = 'the leading ingest has not confirmed this Redis yet';
    const lease: Dependencies['lease'] = {
      judge: () => ({ kind: 'unclear', reason }),
      pause: undefined,
    };
    assert.deepEqual(await rig.provision(claim, { lease }), { kind: 'later', reason });
    assert.equal(creations(), 0);
    assert.equal(await rig.doubtMs(claim), undefined);
  });

  it('writes no PV after a call that took too long', async () => {
    const claim = await rig.claim();
    const outcome = await rig.provision(claim, { doubtMs: 10_000 });
    assert.ok(outcome.kind === 'later' && outcome.reason.includes('too late'), outcome.kind);
    assert.equal(await rig.volumeOf(claim), undefined);
    endFaults(rig);
    await rig.provision(claim);
    assert.ok(await rig.volumeOf(claim));
  });

  it('writes nothing to the claim', async () => {
    const claim = await rig.claim();
    await loseAnswer(rig, claim);
    await rig.provision(claim);
    assert.deepEqual(await claimNow(rig, claim), claim);
  });
});
