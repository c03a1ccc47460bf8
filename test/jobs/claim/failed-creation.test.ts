import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type CodeName, isStillRunning } from '#src/csi/status.ts';
import { judgeCreateFailure } from '#src/jobs/claim/failed-creation.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { ALPHA_SELECTED_NODE, SELECTED_NODE, WITH_SECRET, useRig, type Rig } from '../rig.ts';

/** Upstream's states. Finished: nothing is begun, and the claim is retried. InBackground: a call
 * may be at work. Upstream takes AlreadyExists for final; here the volume of that name may be ours
 * (invariant 6). The numbers are those of upstream's combinations of topology and selected node. */
const CODES: readonly (readonly [CodeName, 'Finished' | 'InBackground', string])[] = [
  ['Canceled', 'InBackground', 'E-05, E-06, E-07, E-08'],
  ['DeadlineExceeded', 'InBackground', 'E-09, E-10, E-11, E-12, B-25'],
  ['Unavailable', 'InBackground', 'E-13, E-14, E-15, E-16'],
  ['Aborted', 'InBackground', 'E-17, E-18, E-19, E-20'],
  ['ResourceExhausted', 'Finished', 'E-21, E-22, E-23'],
  ['Unknown', 'Finished', 'E-25, E-26, E-27, E-28'],
  ['InvalidArgument', 'Finished', 'E-29, E-30, E-31, E-32'],
  ['NotFound', 'Finished', 'E-33, E-34, E-35, E-36'],
  ['AlreadyExists', 'InBackground', 'E-37, E-38, E-39, E-40'],
  ['PermissionDenied', 'Finished', 'E-41, E-42, E-43, E-44'],
  ['FailedPrecondition', 'Finished', 'E-45, E-46, E-47, E-48'],
  ['OutOfRange', 'Finished', 'E-49, E-50, E-51, E-52'],
  ['Unimplemented', 'Finished', 'E-53, E-54, E-55, E-56'],
  ['Internal', 'Finished', 'E-57, E-58, E-59, E-60'],
  ['DataLoss', 'Finished', 'E-61, E-62, E-63, E-64'],
  ['Unauthenticated', 'Finished', 'E-65, E-66, E-67, E-68, B-24'],
];

describe('an error of CreateVolume', () => {
  const judged = (codeName: string, from: 'driver' | 'gateway' | 'unknown', isSource = false) =>
    judgeCreateFailure(
      { codeName, driverSaid: from === 'driver', notForwarded: from === 'gateway' },
      { isNotFoundUnknown: isSource },
    );

  for (const [code, state, ids] of CODES)
    it(`is ${state} with ${code} of the driver, and has an unknown end otherwise (${ids})`, () => {
      const unknown = { kind: 'unknown', running: isStillRunning(code) };
      const refused = { kind: 'refused', infeasible: code === 'InvalidArgument' };
      assert.deepEqual(judged(code, 'driver'), state === 'Finished' ? refused : unknown);
      assert.deepEqual(judged(code, 'unknown'), unknown);
    });

  it('means for some codes that the driver is still running', () =>
    assert.deepEqual(
      CODES.flatMap(([code]) => (isStillRunning(code) ? [code] : [])),
      ['Canceled', 'DeadlineExceeded', 'Aborted'],
    ));
  it('has an unknown end if NotFound may be about the content source', () => {
    assert.deepEqual(judged('NotFound', 'driver', true), { kind: 'unknown', running: false });
    assert.deepEqual(judged('Internal', 'driver', true), { kind: 'refused', infeasible: false });
  });
  it('means that nothing was sent if the gateway says so', () => {
    for (const code of ['Aborted', 'Unavailable', 'NotFound'])
      assert.deepEqual(judged(code, 'gateway', true), { kind: 'not-forwarded' }, code);
  });
});

describe('a creation that fails', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  // One code of each kind, and the one that can move a claim to another node.
  for (const [code, state] of [
    ['Internal', 'none'],
    ['ResourceExhausted', 'none'],
    ['DeadlineExceeded', 'open'],
  ] as const)
    it(`with ${code}, is told in an event, with topology and without, on a node and on none`, async () => {
      rig.failWith(code);
      const parts = [{}, rig.withTopology()];
      const node = { annotations: { [SELECTED_NODE]: 'node' } };
      for (const [i, change] of [{}, node, {}, node].entries()) {
        if (code === 'ResourceExhausted' && i === 3) continue;
        const claim = await rig.claim(change);
        const outcome = await rig.provision(claim, parts[i >> 1]);
        assert.ok('reason' in outcome && outcome.reason.includes(`code = ${code} desc = no`));
        assert.equal(await rig.volumeOf(claim), undefined, 'no PV');
        assert.equal(await rig.stateOf(claim), state);
        assert.deepEqual(await rig.claimNow(claim), claim, 'the node stays');
        const [event = '', ...others] = rig.messages().slice(i);
        assert.match(event, new RegExp(`^Warning ProvisioningFailed .*code = ${code} desc = no$`));
        assert.deepEqual(others, []);
      }
    });

  it('with InvalidArgument in doubt, stays in doubt and has the longest delay (R-10)', async () => {
    const claim = await rig.claim();
    rig.failWith('Aborted');
    await rig.provision(claim);
    rig.failWith('InvalidArgument', 'no');
    const outcome = await rig.provision(claim);
    assert.equal(await rig.stateOf(claim), 'open');
    assert.ok(outcome.kind === 'retry' && outcome.minDelayMs === rig.parts.retryMaxMs);
  });

  describe('with InvalidArgument, is infeasible:', () => {
    const infeasible = async (change: Partial<Dependencies> = {}) => {
      const claim = await rig.claim();
      rig.failWith('InvalidArgument', 'no such pool');
      return { claim, outcome: await rig.provision(claim, change) };
    };
    const calls = () => rig.callsOf('CreateVolume').length;

    it('its retries are delayed, and an event says so (P-102, R-09)', async () => {
      const { outcome } = await infeasible();
      assert.ok(outcome.kind === 'retry' && outcome.minDelayMs === rig.parts.retryMaxMs);
      assert.deepEqual(rig.messages(), [
        'Warning ProvisioningFailed Volume provisioning failed with infeasible error. Retries ' +
          'will be delayed. rpc error: code = InvalidArgument desc = no such pool',
      ]);
    });

    it('nothing is sent during the back-off, even after an edit (P-102, Q-56, R-09)', async () => {
      const { claim, outcome } = await infeasible();
      const again = await rig.provision(claim);
      assert.ok(outcome.kind === 'retry' && again.kind === 'later');
      assert.equal(again.reason, outcome.reason);
      assert.ok((again.delayMs ?? 0) > rig.parts.retryMaxMs - 60_000);
      assert.deepEqual([calls(), rig.messages().length], [1, 1]);
    });

    it('the call is repeated after the back-off (P-103, Q-55, Q-58)', async () => {
      const { claim } = await infeasible({ retryMaxMs: 0 });
      await rig.provision(claim);
      assert.equal(calls(), 2);
    });

    it('the back-off ends for a class that was created again (R-09)', async () => {
      const { claim } = await infeasible();
      const cls = rig.parts.classOf(claim.spec.storageClassName ?? '');
      assert.ok(cls);
      const again = { ...cls, metadata: { ...cls.metadata, uid: 'created-again' } };
      await rig.provision(claim, { classOf: () => again });
      assert.equal(calls(), 2);
    });
  });

  it('as a clone, is no failure for an hour, and other volumes are', async () => {
    const source = await rig.claim();
    const { namespace = '', name } = source.metadata;
    const able = rig.able('CLONE_VOLUME');
    await rig.provision(source, able);
    const created = await rig.volumeOf(source);
    assert.ok(created);
    const { metadata } = await rig.setPhase(created, 'Bound');
    const set = (body: object, subresource?: 'status') =>
      rig.kube.patch(
        claims,
        { namespace, name },
        { type: 'merge', body, ...(subresource ? { subresource } : {}) },
      );
    await set({ spec: { volumeName: metadata.name } });
    await set({ status: { phase: 'Bound' } }, 'status');
    await rig.reset();
    const dataSource = { kind: 'PersistentVolumeClaim', name };
    const { storageClassName: className = '' } = source.spec;
    const claim = await rig.claim({ className, spec: { dataSource } });
    rig.failWith('DeadlineExceeded', 'still copying');
    for (const _ of [1, 2]) assert.equal((await rig.provision(claim, able)).kind, 'running');
    const [event, ...others] = rig.events;
    assert.deepEqual([event?.type, event?.reason, others], ['Normal', 'Provisioning', []]);
    const [, since = '', until = ''] =
      / since (\S+);.* from (\S+) on/.exec(event?.message ?? '') ?? [];
    assert.equal(new Date(until).getTime() - new Date(since).getTime(), 3_600_000);
    await rig.provision(await rig.claim(), able);
    assert.equal(rig.events.at(-1)?.type, 'Warning');
  });

  describe('since its PV can’t be written', () => {
    const refused = new KubeError({ code: 403, reason: 'x', serverMessage: 'quota exceeded' });
    const refusing = (times: number): Partial<Dependencies> => {
      let left = times;
      return rig.kubeWith({
        create: (...args) => {
          left -= 1;
          return left < 0 ? rig.kube.create(...args) : Promise.reject(refused);
        },
      });
    };
    const assertSameRequests = (): void => {
      const [first, ...others] = rig.callsOf('CreateVolume').map(({ request }) => request);
      for (const each of others) assert.deepEqual(each, first);
    };

    it('has no PV, and the server’s message is reported once (P-12, P-25)', async () => {
      const claim = await rig.claim();
      const never = refusing(Infinity);
      for (const _ of [1, 2, 3]) assert.equal((await rig.provision(claim, never)).kind, 'retry');
      assert.equal(await rig.stateOf(claim), 'open');
      assert.equal(await rig.volumeOf(claim), undefined);
      assert.equal(rig.messages().length, 1);
      assert.match(rig.messages()[0] ?? '', /^Warning ProvisioningFailed .*quota exceeded$/);
      assertSameRequests();
    });

    it('has the driver answer again, and the third run writes it (P-26)', async () => {
      const claim = await rig.claim();
      const twice = refusing(2);
      for (const _ of [1, 2]) assert.equal((await rig.provision(claim, twice)).kind, 'retry');
      await rig.endDoubt(claim);
      assert.equal((await rig.provision(claim, twice)).kind, 'done');
      assertSameRequests();
      assert.ok(await rig.volumeOf(claim));
    });
  });

  describe('on the selected node', () => {
    const onNode = (change: Parameters<Rig['claim']>[0] = {}) =>
      rig.claim({ annotations: { [SELECTED_NODE]: 'node', other: 'kept' }, ...change });
    const annotationsOf = async (claim: Claim) => (await rig.claimNow(claim))?.metadata.annotations;
    const provision = (claim: Claim, change: Partial<Dependencies> = {}) =>
      rig.provision(claim, { ...rig.withTopology(), ...change });

    it('for want of room, is as if never begun; only the node is removed (P-27, E-24)', async () => {
      const claim = await onNode();
      rig.failWith('ResourceExhausted', 'full');
      assert.equal((await provision(claim)).kind, 'done');
      const { [SELECTED_NODE]: _, ...others } = claim.metadata.annotations ?? {};
      assert.deepEqual(await annotationsOf(claim), others);
      assert.equal(await rig.stateOf(claim), 'none');
    });

    const kept: readonly (readonly [string, CodeName, 'none' | 'open'])[] = [
      ['for another reason, is as if never begun, and the node stays (P-28)', 'Internal', 'none'],
      ['with an unknown end, is in doubt, and the node stays (P-30)', 'Aborted', 'open'],
    ];
    for (const [title, code, state] of kept)
      it(title, async () => {
        const claim = await onNode();
        rig.failWith(code);
        await provision(claim);
        assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
        assert.equal(await rig.stateOf(claim), state);
      });

    it('since its secret is missing, begins nothing, and the node stays (P-29)', async () => {
      const claim = await onNode({ parameters: WITH_SECRET });
      assert.equal((await provision(claim)).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      assert.equal(await rig.stateOf(claim), 'none');
    });

    it('for want of room in doubt, stays in doubt, and the node stays', async () => {
      const claim = await onNode();
      rig.failWith('Aborted');
      await provision(claim);
      rig.failWith('ResourceExhausted', 'full');
      assert.equal((await provision(claim)).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      assert.equal(await rig.stateOf(claim), 'open');
    });

    it('is retried on the same node if the claim changed meanwhile (R-06)', async () => {
      const claim = await onNode();
      rig.failWith('ResourceExhausted', 'full');
      const body = { metadata: { labels: { changed: 'meanwhile' } } };
      const meanwhile = rig.kubeWith({
        async update(...args) {
          await rig.kube.patch(args[0], args[1], { type: 'merge', body });
          return rig.kube.update(...args);
        },
      });
      const reason = 'rpc error: code = ResourceExhausted desc = full';
      assert.deepEqual(await provision(claim, meanwhile), { kind: 'retry', reason });
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      rig.endFaults();
      assert.equal((await provision(claim)).kind, 'done');
    });

    it('is retried if only the old annotation names the node (R-07)', async () => {
      const claim = await rig.claim({ annotations: { [ALPHA_SELECTED_NODE]: 'node' } });
      rig.failWith('ResourceExhausted', 'full');
      assert.equal((await provision(claim)).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[ALPHA_SELECTED_NODE], 'node');
      assert.equal(await rig.stateOf(claim), 'none');
    });
  });
});
