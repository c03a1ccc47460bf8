import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
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

  describe('of a class with a limit', () => {
    /** The classes with annotations of ours. */
    const annotated = (settings: Record<string, string>): Pick<Dependencies, 'classOf'> => {
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
      };
    };
    const PAUSED = annotated({ 'max-in-flight': '0' });
    const ONE = annotated({ 'max-in-flight': '1' });
    let classes = 0;
    let className = '';
    // Each test has a class of its own.
    beforeEach(() => {
      className = `limited-${(classes += 1)}`;
    });
    const inClass = () => rig.claim({ className });
    const failWith = (code: (typeof Code)[keyof typeof Code]) => {
      rig.onCall = () => {
        throw new DriverStatus(code, 'no');
      };
    };
    const rejects = () => Promise.reject(new Error('asked for a place'));
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
        assert.match(outcome.reason, /creates at most 1 volumes at once/);
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

    it('asks again without a request to the API server', async () => {
      const [first, second] = [await inClass(), await inClass()];
      failWith(Code.DeadlineExceeded);
      await rig.provision(first, ONE);
      assert.equal((await rig.provision(second, ONE)).kind, 'later');
      const kube = kubeWith(rig, { get: () => Promise.reject(new Error('asked for an object')) });
      assert.equal((await rig.provision(second, { ...ONE, ...kube })).kind, 'later');
    });

    it('takes no place for a claim that was deleted while it waited', async () => {
      const [first, second, third] = [await inClass(), await inClass(), await inClass()];
      failWith(Code.DeadlineExceeded);
      await rig.provision(first, ONE);
      assert.equal((await rig.provision(second, ONE)).kind, 'later');
      rig.onCall = () => undefined;
      await rig.provision(first, ONE);
      await remove(second);
      assert.equal((await rig.provision(second, ONE)).kind, 'done');
      assert.equal((await rig.provision(third, ONE)).kind, 'done');
    });

    it('gives its place back when the run before has created the volume', async () => {
      const [first, second] = [await inClass(), await inClass()];
      const end = () => Promise.reject(new Error('Redis went away'));
      const { classLimits } = rig.parts;
      const lossy = {
        look: classLimits.look.bind(classLimits),
        take: classLimits.take.bind(classLimits),
        end,
      };
      assert.equal((await rig.provision(first, { ...ONE, classLimits: lossy })).kind, 'done');
      assert.equal((await rig.provision(second, ONE)).kind, 'later');
      const body = { spec: { volumeName: (await rig.volumeOf(first))?.metadata.name } };
      const { namespace = '', name } = first.metadata;
      await rig.kube.patch(claims, { namespace, name }, { type: 'merge', body });
      assert.equal((await rig.provision(first, ONE)).kind, 'done');
      assert.equal((await rig.provision(second, ONE)).kind, 'done');
    });

    it('does not wait for one whose claim was deleted while it had a place', async () => {
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
      assert.equal((await rig.provision(third, ONE)).kind, 'done');
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

    it('asks for no place if the class has no limit', async () => {
      const classLimits = { look: rejects, take: rejects, end: rejects };
      const claim = await inClass();
      assert.equal((await rig.provision(claim, { classLimits })).kind, 'done');
    });

    it('waits while Redis can’t be asked for a place', async () => {
      const claim = await inClass();
      const outcome = await rig.provision(claim, {
        ...ONE,
        classLimits: { look: rejects, take: rejects, end: rejects },
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
