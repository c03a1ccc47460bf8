import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import type { Claim, ClaimSpec, Volume } from '#src/kube/objects.ts';
import { claims, secrets, volumes } from '#src/kube/resources.ts';
import { createLogger } from '#src/runtime/log.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  annotatedClaim,
  answerWith,
  callsOf,
  claimNow,
  failWith,
  messagesOf,
  stateOf,
} from '../claim-cases.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
const BYTES = 2n ** 20n;

describe('provisioning', () => {
  let rig: Rig;
  let names = 0;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  /** Creates a claim of a common class, with these changes of its spec. */
  async function claimOf(
    spec: Partial<ClaimSpec>,
    annotations: Readonly<Record<string, string>> = { [PROVISIONER]: DRIVER },
  ): Promise<Claim> {
    const { spec: plain } = await rig.claim({ className: 'common' });
    return rig.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `own-${(names += 1)}`, namespace: 'default', annotations },
      spec: { ...plain, ...spec },
    });
  }
  const withCapability = (...more: string[]): Partial<Dependencies> => {
    const facts = rig.parts.facts();
    return {
      facts: () => ({
        ...facts,
        controllerCapabilities: new Set([...facts.controllerCapabilities, ...more]),
      }),
    };
  };
  const options = (change: Partial<Dependencies['options']>): Partial<Dependencies> => ({
    options: { ...rig.parts.options, ...change },
  });
  const requestOf = () => callsOf(rig, 'CreateVolume')[0]?.request as CreateVolumeRequest;
  /** Asserts that nothing was sent or begun, and one event says why. */
  async function assertNothingSent(claim: Claim, message: RegExp): Promise<void> {
    assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
    assert.equal(await stateOf(rig, claim), 'none');
    assert.equal(await rig.volumeOf(claim), undefined);
    assert.equal(messagesOf(rig).length, 1);
    assert.match(messagesOf(rig)[0] ?? '', message);
  }

  describe('creates a volume', () => {
    it('for the claim as it is now, not as a watch saw it (P-99)', async () => {
      const claim = await rig.claim();
      await annotatedClaim(rig, {});
      const hint = {
        ...claim,
        spec: { ...claim.spec, resources: { requests: { storage: '5Gi' } } },
      };
      assert.equal((await rig.provision(hint)).kind, 'done');
      assert.equal(requestOf().capacityRange?.requiredBytes, BYTES);
    });

    it('with the values of its secret, and references to the others in the PV (B-12)', async () => {
      const parameters = {
        'csi.storage.k8s.io/provisioner-secret-name': 'provisionersecret',
        'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
        'csi.storage.k8s.io/node-stage-secret-name': 'nodestagesecret',
        'csi.storage.k8s.io/node-stage-secret-namespace': 'default',
      };
      const claim = await rig.claim({ parameters });
      const metadata = { name: 'provisionersecret', namespace: 'default' };
      const data = { key: Buffer.from('value').toString('base64') };
      await rig.kube.create(secrets, 'default', {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata,
        data,
      });
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.deepEqual(requestOf().secrets, { key: 'value' });
      assert.deepEqual(requestOf().parameters, {});
      // The other secrets are for the nodes; sutler does not read them.
      assert.deepEqual((await rig.volumeOf(claim))?.spec.csi?.nodeStageSecretRef, {
        name: 'nodestagesecret',
        namespace: 'default',
      });
    });
  });

  describe('sends nothing', () => {
    it('for a missing secret, and retries (B-20)', async () => {
      const parameters = {
        'csi.storage.k8s.io/provisioner-secret-name': 'none',
        'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
      };
      const claim = await rig.claim({ parameters });
      assert.equal((await rig.provision(claim)).kind, 'retry');
      await assertNothingSent(
        claim,
        /error getting secret none in namespace default: secrets "none" not found$/,
      );
    });

    it('for a missing VolumeAttributesClass, and parks on it (B-39)', async () => {
      const claim = await claimOf({ volumeAttributesClassName: 'none' });
      const outcome = await rig.provision(claim, withCapability('MODIFY_VOLUME'));
      assert.ok(outcome.kind === 'parked');
      assert.deepEqual(outcome.until, [
        { resource: 'volumeattributesclasses', name: 'none', seen: '' },
      ]);
      await assertNothingSent(claim, /volumeattributesclasses\.storage\.k8s\.io "none" not found$/);
    });

    it('for a populator’s claim, with an event each time (B-27, P-14)', async () => {
      const claim = await claimOf({
        dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' },
      });
      for (const _ of [1, 2]) assert.equal((await rig.provision(claim)).kind, 'done');
      assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
      const event = 'Normal Provisioning Assuming an external populator will provision the volume';
      assert.deepEqual(messagesOf(rig), [event, event]);
      assert.deepEqual(
        rig.events.map(({ component, isAlwaysTold }) => [component, isAlwaysTold]),
        [1, 2].map(() => ['external-provisioner', true]),
      );
    });

    it('for the one of two claims that is another provisioner’s (P-01, P-15)', async () => {
      const alien = await claimOf({}, { [PROVISIONER]: 'other' });
      const ours = await rig.claim();
      assert.deepEqual(
        [(await rig.provision(alien)).kind, (await rig.provision(ours)).kind],
        ['done', 'done'],
      );
      assert.equal(await rig.volumeOf(alien), undefined);
      assert.ok(await rig.volumeOf(ours));
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
    });

    it('for a claim without its class, and parks on the class (P-07, R-04)', async () => {
      const claim = await rig.claim();
      const outcome = await rig.provision(claim, { classOf: () => undefined });
      assert.ok(outcome.kind === 'parked');
      assert.deepEqual(outcome.until, [
        { resource: 'storageclasses', name: claim.spec.storageClassName, seen: '' },
      ]);
      assert.deepEqual([callsOf(rig, 'CreateVolume'), messagesOf(rig)], [[], []]);
    });
  });

  describe('when the driver fails', () => {
    it('writes no PV, reports it, and the next run plans anew (P-10, P-18)', async () => {
      const claim = await rig.claim();
      failWith(rig, new DriverStatus(Code.Internal, 'no'));
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await rig.volumeOf(claim), undefined);
      assert.equal(await stateOf(rig, claim), 'none');
      assert.deepEqual(messagesOf(rig), [
        'Warning ProvisioningFailed rpc error: code = Internal desc = no',
      ]);
    });

    for (const [code, kind, state, id] of [
      ['Unauthenticated', 'retry', 'none', 'B-24'],
      ['DeadlineExceeded', 'running', 'open', 'B-25'],
    ] as const)
      it(`with ${code}: the creation is then ${state} (${id})`, async () => {
        const claim = await rig.claim();
        failWith(rig, new DriverStatus(Code[code], 'no'));
        assert.equal((await rig.provision(claim)).kind, kind);
        assert.equal(await stateOf(rig, claim), state);
      });

    it('repeats the call in the next run (P-101)', async () => {
      const claim = await rig.claim();
      failWith(rig, new DriverStatus(Code.Internal, 'no'));
      await rig.provision(claim);
      await rig.provision(claim);
      assert.equal(callsOf(rig, 'CreateVolume').length, 2);
    });

    it('with InvalidArgument, starts an infeasible back-off, and reports it (P-102, R-09)', async () => {
      const claim = await rig.claim();
      failWith(rig, new DriverStatus(Code.InvalidArgument, 'no such pool'));
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'retry');
      assert.equal(outcome.minDelayMs, rig.parts.retryMaxMs);
      const text =
        'Volume provisioning failed with infeasible error. Retries will be delayed. ' +
        'rpc error: code = InvalidArgument desc = no such pool';
      assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${text}`]);
    });

    it('sends nothing during the infeasible back-off, even after an edit (P-102, Q-56, R-09)', async () => {
      const claim = await rig.claim();
      failWith(rig, new DriverStatus(Code.InvalidArgument, 'no such pool'));
      const first = await rig.provision(claim);
      const again = await rig.provision(claim);
      assert.ok(first.kind === 'retry');
      assert.ok(again.kind === 'later' && again.reason === first.reason);
      assert.ok((again.delayMs ?? 0) > rig.parts.retryMaxMs - 60_000);
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
      assert.equal(messagesOf(rig).length, 1);
    });

    it('repeats the call after the infeasible back-off (P-103, Q-55, Q-58)', async () => {
      const claim = await rig.claim();
      failWith(rig, new DriverStatus(Code.InvalidArgument, 'no such pool'));
      await rig.provision(claim, { retryMaxMs: 0 });
      await rig.provision(claim);
      assert.equal(callsOf(rig, 'CreateVolume').length, 2);
    });

    it('ends the infeasible back-off for a class that was created again (R-09)', async () => {
      const claim = await rig.claim();
      failWith(rig, new DriverStatus(Code.InvalidArgument, 'no such pool'));
      await rig.provision(claim);
      const cls = rig.parts.classOf(claim.spec.storageClassName ?? '');
      assert.ok(cls);
      await rig.provision(claim, {
        classOf: () => ({ ...cls, metadata: { ...cls.metadata, uid: 'created-again' } }),
      });
      assert.equal(callsOf(rig, 'CreateVolume').length, 2);
    });

    it('without a volume in its answer, may have made one, and is reported (R-42)', async () => {
      const claim = await rig.claim();
      answerWith(rig, {});
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'open');
      assert.match(
        messagesOf(rig)[0] ?? '',
        /the driver answered CreateVolume without a volume; report this to the driver’s vendor$/,
      );
      assert.deepEqual(callsOf(rig, 'DeleteVolume'), []);
    });
  });

  describe('when the claim’s PV exists', () => {
    const restarted = { doubtMs: 60_000 };
    const over = { doubtMs: -1 };

    it('sends no second call, with whole UIDs (P-02, R-01)', async () => {
      const claim = await rig.claim();
      await rig.provision(claim);
      assert.equal((await rig.provision(claim, {}, over)).kind, 'done');
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
      assert.deepEqual(messagesOf(rig).length, 1);
    });

    it('sends no second call, with names of another form (R-02)', async () => {
      const claim = await rig.claim();
      const named = options({ volumeNamePrefix: 'test', volumeNameUuidLength: 12 });
      await rig.provision(claim, named);
      const name = `test-${claim.metadata.uid.replaceAll('-', '').slice(0, 12)}`;
      assert.equal(requestOf().name, name);
      assert.ok(await rig.kube.get<Volume>(volumes, { name }));
      assert.equal((await rig.provision(claim, named, over)).kind, 'done');
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
    });

    it('ends its job only when no call of before can be at work any more', async () => {
      const claim = await rig.claim();
      await rig.provision(claim);
      const outcome = await rig.provision(claim, {}, restarted);
      assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 50_000, outcome.kind);
      assert.match(outcome.reason, /^volume pvc-\S+ exists; /);
      await rig.endDoubt(claim);
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
    });

    it('takes it for the volume if a first run has the driver answer again', async () => {
      const claim = await rig.claim();
      await rig.provision(claim);
      const before = await rig.volumeOf(claim);
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.deepEqual(await rig.volumeOf(claim), before);
      assert.deepEqual(callsOf(rig, 'DeleteVolume'), []);
    });
  });

  it('logs one line for the claim and one for the deletion, in the trace of both calls', async () => {
    const lines: Readonly<Record<string, unknown>>[] = [];
    const write = (line: string): void =>
      void lines.push(JSON.parse(line) as Readonly<Record<string, unknown>>);
    const log = createLogger({ name: 'jobs', verbosity: 0, format: 'json', write });
    const claim = await rig.claim({ className: 'common' });
    await rig.provision(claim, { log });
    const created = await rig.volumeOf(claim);
    assert.ok(created !== undefined);
    await rig.remove(await rig.setPhase(created, 'Released'), { log });
    const { name: volume } = created.metadata;
    const handle = created.spec.csi?.volumeHandle;
    const trace = claim.metadata.uid.replaceAll('-', '');
    const { pendingMs, ...line } = lines[0] ?? {};
    assert.ok(Number(pendingMs) >= 0 && Number(pendingMs) < 60_000);
    const of = { claim: `default/${claim.metadata.name}`, trace, class: 'common' };
    const common = { level: 'info', process: 'jobs' };
    const [first, second] = [line['time'], lines[1]?.['time']];
    assert.deepEqual(
      [line, ...lines.slice(1)],
      [
        { ...common, time: first, ...of, volume, handle, runs: 1, msg: 'volume provisioned' },
        { ...common, time: second, volume, trace, handle, msg: 'volume deleted' },
      ],
    );
    for (const method of ['CreateVolume', 'DeleteVolume'] as const) {
      const [sent] = callsOf(rig, method)[0]?.metadata.get('traceparent') ?? [];
      assert.match(String(sent), new RegExp(`^00-${trace}-[0-9a-f]{16}-01$`));
    }
  });

  it('deletes a volume that is Released when it is read (P-100)', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    const volume = await rig.volumeOf(claim);
    assert.ok(volume);
    await rig.setPhase(volume, 'Released');
    // The volume that the hint is about has the old phase.
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(callsOf(rig, 'DeleteVolume').length, 1);
    const { deletionTimestamp, finalizers } = (await rig.volumeOf(claim))?.metadata ?? {};
    assert.ok(deletionTimestamp !== undefined && finalizers?.includes(VOLUME_FINALIZER) !== true);
  });

  it('does not write the claim', async () => {
    const claim = await annotatedClaim(rig, { own: 'annotation' });
    await rig.provision(claim);
    assert.deepEqual(await claimNow(rig, claim), claim);
  });
});
