import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { type Parts } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

const parameters = {
  'csi.storage.k8s.io/provisioner-secret-name': 'login',
  'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
};

describe('a run that can’t send its call', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  it('is repeated, and sooner when the missing secret is there', async () => {
    const claim = await rig.claim({ parameters });
    const outcome = await rig.provision(claim);
    assert.ok(outcome.kind === 'retry', JSON.stringify(outcome));
    assert.deepEqual(outcome.until, [
      { resource: 'secrets', namespace: 'default', name: 'login', seen: '' },
    ]);
    assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
    assert.equal(rig.driver.calls.length, 0);
  });

  describe('of a class with limits', () => {
    /** The classes with annotations of ours. */
    const annotated = (settings: Record<string, string>): Pick<Parts, 'classOf' | 'classes'> => {
      const annotations = Object.fromEntries(
        Object.entries(settings).map(([key, value]) => [`sutler.dev/${key}`, value]),
      );
      const change = (cls: Class): Class => ({
        ...cls,
        metadata: { ...cls.metadata, annotations },
      });
      return {
        classOf: (name) => {
          const cls = rig.parts.classOf(name);
          return cls && change(cls);
        },
        classes: () => [...rig.parts.classes()].map(change),
      };
    };
    const PAUSED = annotated({ 'max-in-flight': '0' });
    const ONE = annotated({ 'max-in-flight': '1' });
    let classes = 0;
    let className = '';
    // Each test has a class without turns of the one before.
    beforeEach(() => {
      className = `limited-${(classes += 1)}`;
    });
    const inClass = () => rig.claim({ className });
    const failWith = (code: (typeof Code)[keyof typeof Code]) => {
      rig.onCall = () => {
        throw new DriverStatus(code, 'no');
      };
    };
    const rejects = () => Promise.reject(new Error('asked for a turn'));
    /** The turns as they are, but that Redis takes no end of one while it is away. */
    const awayAtEnds = () => {
      const { turns } = rig.parts;
      const state = { isAway: true };
      const end = (...args: Parameters<typeof turns.end>) =>
        state.isAway ? rejects() : turns.end(...args);
      return Object.assign(state, { turns: { take: turns.take.bind(turns), end } });
    };
    const remove = async ({ metadata: { namespace = '', name } }: Claim): Promise<void> => {
      const body = { metadata: { finalizers: null } };
      await rig.kube.patch(claims, { namespace, name }, { type: 'merge', body });
      await rig.kube.delete(claims, { namespace, name });
    };

    it('waits until a paused class changes, tells nobody, and begins nothing', async () => {
      const claim = await inClass();
      const outcome = await rig.provision(claim, PAUSED);
      assert.ok(outcome.kind === 'later', JSON.stringify(outcome));
      assert.equal(outcome.reason, `class "${className}" is paused (sutler.dev/max-in-flight: 0)`);
      const seen = rig.parts.classOf(className)?.metadata.resourceVersion;
      assert.deepEqual(outcome.until, [{ resource: 'storageclasses', name: className, seen }]);
      assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
      assert.deepEqual([rig.events, rig.driver.calls], [[], []]);
      assert.equal((await rig.provision(claim)).kind, 'done');
    });

    it('waits while another creation may be at work, and for no longer', async () => {
      const [first, second] = [await inClass(), await inClass()];
      for (const code of [Code.DeadlineExceeded, Code.Unavailable]) {
        failWith(code);
        await rig.provision(first, ONE);
        const outcome = await rig.provision(second, ONE);
        assert.ok(outcome.kind === 'later', JSON.stringify(outcome));
        assert.match(
          outcome.reason,
          /creates at most 1 volumes at once .*, 0 wait before this one/,
        );
      }
      rig.onCall = () => undefined;
      assert.equal((await rig.provision(first, ONE)).kind, 'later');
      assert.ok(await rig.volumeOf(first));
      assert.equal((await rig.provision(second, ONE)).kind, 'done');
    });

    it('does not wait for one that the driver has refused', async () => {
      const [first, second] = [await inClass(), await inClass()];
      failWith(Code.Internal);
      assert.equal((await rig.provision(first, ONE)).kind, 'retry');
      rig.onCall = () => undefined;
      assert.equal((await rig.provision(second, ONE)).kind, 'done');
    });

    it('does not wait for one that has its volume, and whose turn was not ended', async () => {
      const [first, second] = [await inClass(), await inClass()];
      const redis = awayAtEnds();
      const { turns } = redis;
      assert.equal((await rig.provision(first, { ...ONE, turns })).kind, 'done');
      assert.equal((await rig.provision(second, ONE)).kind, 'later');
      const body = { spec: { volumeName: (await rig.volumeOf(first))?.metadata.name } };
      const { namespace = '', name } = first.metadata;
      await rig.kube.patch(claims, { namespace, name }, { type: 'merge', body });
      assert.equal((await rig.provision(first, ONE)).kind, 'done');
      assert.equal((await rig.provision(second, ONE)).kind, 'done');
      redis.isAway = false;
    });

    it('ends its turn when Redis is back, and does not keep its worker until then', async () => {
      const [first, second] = [await inClass(), await inClass()];
      const redis = awayAtEnds();
      const { turns } = redis;
      const startMs = Date.now();
      assert.equal((await rig.provision(first, { ...ONE, turns })).kind, 'done');
      // It would be asked for its end for two minutes.
      assert.ok(Date.now() - startMs < 30_000, 'its worker takes the next job');
      assert.equal((await rig.provision(second, ONE)).kind, 'later');
      redis.isAway = false;
      await until(
        async () => (await rig.provision(second, ONE)).kind === 'done',
        'the turn has ended',
      );
    });

    it('does not wait for one whose claim was deleted while it had its turn', async () => {
      const [first, second, third] = [await inClass(), await inClass(), await inClass()];
      failWith(Code.DeadlineExceeded);
      await rig.provision(first, ONE);
      assert.equal((await rig.provision(second, ONE)).kind, 'later');
      await remove(first);
      await rig.provision(first, ONE);
      assert.equal((await rig.provision(third, ONE)).kind, 'later', 'the call may be at work');
      rig.onCall = () => undefined;
      assert.equal((await rig.provision(first, ONE)).kind, 'later');
      assert.ok(await rig.volumeOf(first), 'its PV is written');
      await remove(second);
      // The turn went to the second one, which is gone by now.
      assert.equal((await rig.provision(second, ONE)).kind, 'done');
      assert.equal((await rig.provision(third, ONE)).kind, 'done');
    });

    it('waits for its start by the limit of a second', async () => {
      const of = annotated({ 'max-per-second': '0.2' });
      await rig.provision(await inClass(), of);
      const outcome = await rig.provision(await inClass(), of);
      assert.ok(outcome.kind === 'later' && outcome.isTurn, JSON.stringify(outcome));
      assert.match(
        outcome.reason,
        /at most 0.2 volumes a second .*, it is the turn of this one in/,
      );
      assert.ok((outcome.delayMs ?? 0) <= 5_000 && (outcome.delayMs ?? 0) > 4_000);
    });

    it('deletes nothing while the class is paused', async () => {
      const claim = await inClass();
      await rig.provision(claim);
      const volume = await rig.volumeOf(claim);
      assert.ok(volume);
      const released = await rig.setPhase(volume, 'Released');
      const outcome = await rig.remove(released, PAUSED);
      assert.ok(outcome.kind === 'later' && /is paused/.test(outcome.reason), outcome.kind);
      assert.equal((await rig.remove(released)).kind, 'done');
    });

    it('asks for no turn if the class has no limit', async () => {
      const turns = { take: rejects, end: rejects };
      const claim = await inClass();
      assert.equal((await rig.provision(claim, { turns })).kind, 'done');
    });

    it('waits while Redis can’t be asked for a turn', async () => {
      const claim = await inClass();
      const outcome = await rig.provision(claim, {
        ...ONE,
        turns: { take: rejects, end: rejects },
      });
      assert.equal(outcome.kind, 'later');
      assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
    });

    it('is told by a Warning that its creation takes long only after the class’s time', async () => {
      const claim = await inClass();
      failWith(Code.DeadlineExceeded);
      const patient = annotated({ 'creation-timeout': '20m' });
      for (let i = 0; i < 3; i += 1) {
        const outcome = await rig.provision(claim, patient);
        assert.ok(outcome.kind === 'running' && outcome.isUsual === true, JSON.stringify(outcome));
      }
      const [told = '', ...others] = new Set(rig.events.map(({ message }) => message));
      assert.match(told, /^The driver is at work on the volume since .+ as failing from /);
      assert.deepEqual(others, []);
      assert.equal(rig.events.length, 2, 'the second and the third call');
      rig.events.length = 0;
      const outcome = await rig.provision(claim, annotated({ 'creation-timeout': '1ms' }));
      assert.ok(outcome.kind === 'running' && outcome.isUsual !== true, JSON.stringify(outcome));
      assert.deepEqual(
        rig.events.map(({ type, reason }) => `${type} ${reason}`),
        ['Warning ProvisioningFailed'],
      );
    });
  });

  it('reports that the driver is down for all keys if the gateway has none', async () => {
    const claim = await rig.claim();
    await rig.driver.close();
    while (rig.gateway.trouble === undefined) await rig.parts.clock.sleep(10);
    const outcome = await rig.provision(claim);
    assert.ok(outcome.kind === 'later' && outcome.isDriverDown === true, JSON.stringify(outcome));
    assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
  });
});
