import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { CodeName } from '#src/csi/status.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { useRig, type Rig } from '../rig.ts';
import { until } from '../../harness/until.ts';

const CAP = 1;

describe('a run that can’t send its call', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened), { maxInFlight: CAP });

  describe('of a class with a limit', () => {
    /** The classes with annotations of ours. */
    const annotated = (key: string, value: string): Pick<Dependencies, 'classOf'> => ({
      classOf: (name): Class | undefined => {
        const cls = rig.parts.classOf(name);
        const annotations = { [`sutler.dev/${key}`]: value };
        return cls && { ...cls, metadata: { ...cls.metadata, annotations } };
      },
    });
    const PAUSED = annotated('max-in-flight', '0');
    const ONE = annotated('max-in-flight', '1');
    let classes = 0;
    let className = '';
    // Each test has a class of its own.
    beforeEach(() => {
      className = `limited-${(classes += 1)}`;
    });
    const inClass = () => rig.claim({ className });
    const twoClaims = async () => [await inClass(), await inClass()] as const;
    const failing = (code: CodeName) => rig.failWith(code);
    const kindOf = async (claim: Claim) => (await rig.provision(claim, ONE)).kind;

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
      const [first, second] = await twoClaims();
      for (const code of ['DeadlineExceeded', 'Unavailable'] as const) {
        failing(code);
        await rig.provision(first, ONE);
        const outcome = await rig.provision(second, ONE);
        assert.ok(outcome.kind === 'later', JSON.stringify(outcome));
        assert.match(outcome.reason, /creates at most 1 volumes at once/);
      }
      rig.endFaults();
      assert.equal(await kindOf(first), 'later');
      assert.ok(await rig.volumeOf(first));
      assert.equal(await kindOf(second), 'done');
    });

    it('does not wait for one that the driver has refused', async () => {
      const [first, second] = await twoClaims();
      failing('Internal');
      assert.equal(await kindOf(first), 'retry');
      rig.endFaults();
      assert.equal(await kindOf(second), 'done');
    });

    it('gives its place back when the run before has created the volume', async () => {
      const [first, second] = await twoClaims();
      const { classLimits } = rig.parts;
      const lossy = {
        look: classLimits.look.bind(classLimits),
        take: classLimits.take.bind(classLimits),
        end: () => Promise.reject(new Error('Redis went away')),
      };
      assert.equal((await rig.provision(first, { ...ONE, classLimits: lossy })).kind, 'done');
      assert.equal(await kindOf(second), 'later');
      const body = { spec: { volumeName: (await rig.volumeOf(first))?.metadata.name } };
      await rig.kube.patch(claims, { ...first.metadata }, { type: 'merge', body });
      assert.equal(await kindOf(first), 'done');
      assert.equal(await kindOf(second), 'done');
    });

    it('does not wait for one whose claim was deleted while it had a place', async () => {
      const [first, second] = await twoClaims();
      failing('DeadlineExceeded');
      await rig.provision(first, ONE);
      await rig.removeClaim(first);
      await rig.provision(first, ONE);
      assert.equal(await kindOf(second), 'later', 'the call may be at work');
      rig.endFaults();
      assert.equal(await kindOf(first), 'later');
      assert.ok(await rig.volumeOf(first), 'its PV is written');
      assert.equal(await kindOf(second), 'done');
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

    it('waits while Redis can’t be asked for a place', async () => {
      const claim = await inClass();
      const rejects = () => Promise.reject(new Error('Redis is away'));
      const classLimits = { look: rejects, take: rejects, end: rejects };
      assert.equal((await rig.provision(claim, { ...ONE, classLimits })).kind, 'later');
      assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
    });

    it('is told by a Warning that its creation takes long only after the class’s time', async () => {
      const claim = await inClass();
      failing('DeadlineExceeded');
      const patient = annotated('creation-timeout', '20m');
      for (let i = 0; i < 3; i += 1) {
        const outcome = await rig.provision(claim, patient);
        assert.ok(outcome.kind === 'running' && outcome.isUsual === true, JSON.stringify(outcome));
      }
      const [told = '', ...others] = new Set(rig.events.map(({ message }) => message));
      assert.match(told, /^The driver has been creating the volume since .+ warns from /);
      assert.deepEqual(others, []);
      assert.equal(rig.events.length, 2, 'the second and the third call');
      rig.events.length = 0;
      await rig.provision(claim, annotated('creation-timeout', '1ms'));
      assert.deepEqual(
        rig.events.map(({ type, reason }) => `${type} ${reason}`),
        ['Warning ProvisioningFailed'],
      );
    });
  });

  it('does not take a full gateway for a driver that is down', async () => {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    rig.onCall = ({ method }) =>
      method === 'CreateVolume' ? opened.then(() => undefined) : undefined;
    const [first, second] = [await rig.claim(), await rig.claim()];
    const running = rig.provision(first);
    await until(() => rig.callsOf('CreateVolume').length === CAP, 'the gateway is full');
    // The view of the Lease is about to be too old.
    const judge = () => ({ kind: 'may', untilMs: performance.now() + 300 }) as const;
    const outcome = await rig.provision(second, { lease: { judge, pause: undefined } });
    assert.ok(outcome.kind === 'later', JSON.stringify(outcome));
    assert.deepEqual([outcome.isGatewayFull, outcome.isDriverDown], [true, undefined]);
    assert.match(outcome.reason, /the gateway is full: 1 calls? (is|are) under way/);
    assert.equal(await rig.doubtMs(second), undefined, 'nothing is begun');
    open();
    await running;
  });

  it('reports that the driver is down for all keys if the gateway has none', async () => {
    const claim = await rig.claim();
    await rig.driver.close();
    await until(() => rig.gateway.trouble !== undefined, 'the gateway sees it');
    const outcome = await rig.provision(claim);
    assert.ok(outcome.kind === 'later' && outcome.isDriverDown === true, JSON.stringify(outcome));
    assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
  });
});
