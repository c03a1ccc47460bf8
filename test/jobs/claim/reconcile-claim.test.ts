import assert from 'node:assert/strict';
import { before, beforeEach, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { createLogger } from '#src/runtime/log.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { useRig, type Rig, WITH_SECRET } from '../rig.ts';

describe('reconcileClaim', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const creates = () => rig.callsOf('CreateVolume').length;
  const requests = () =>
    rig.callsOf('CreateVolume').map(({ request }) => request as CreateVolumeRequest);
  const options = (change: Partial<Dependencies['options']>): Pick<Dependencies, 'options'> => ({
    options: { ...rig.parts.options, ...change },
  });
  const foreignPv = (name: string) =>
    rig.kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        csi: { driver: 'x', volumeHandle: 'y' },
      },
    });

  it('creates the volume, writes the PV and records an event on the claim (P-17)', async () => {
    const claim = await rig.claim();
    assert.equal((await rig.provision(claim)).kind, 'done');
    const volume = await rig.volumeOf(claim);
    assert.equal(volume?.spec.csi?.driver, 'sample.csi.sutler.dev');
    assert.equal(volume.spec.claimRef?.uid, claim.metadata.uid);
    assert.deepEqual(rig.messages(), [
      `Normal ProvisioningSucceeded Successfully provisioned volume pvc-${claim.metadata.uid}`,
    ]);
  });

  it('sends one read and one write to the API server, besides its event', async () => {
    const counted: string[] = [];
    const { kube } = rig;
    const counting = rig.kubeWith({
      get: (...args) => (counted.push('get'), kube.get(...args)),
      list: (...args) => (counted.push('list'), kube.list(...args)),
      create: (...args) => (counted.push('create'), kube.create(...args)),
      patch: (...args) => (counted.push('patch'), kube.patch(...args)),
    });
    await rig.provision(await rig.claim(), counting);
    assert.deepEqual(counted, ['get', 'create']);
  });

  it('writes nothing to the claim', async () => {
    const claim = await rig.claim({ annotations: { own: 'annotation' } });
    await rig.provision(claim);
    assert.deepEqual(await rig.claimNow(claim), claim);
  });

  it('does nothing for another claim of the same name', async () => {
    const claim = await rig.claim();
    const other = { ...claim, metadata: { ...claim.metadata, uid: 'other' } };
    assert.equal((await rig.provision(other)).kind, 'done');
    assert.equal(creates(), 0);
  });

  it('creates a volume for the claim as it is now, not as a watch saw it (P-99)', async () => {
    const claim = await rig.claim();
    const seen = { ...claim.spec, resources: { requests: { storage: '5Gi' } } };
    assert.equal((await rig.provision({ ...claim, spec: seen })).kind, 'done');
    assert.equal(requests()[0]?.capacityRange?.requiredBytes, 2n ** 20n);
  });

  it('leaves a populator’s claim to it, with an event each time (B-27, P-14)', async () => {
    const dataSourceRef = { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' };
    const claim = await rig.claim({ spec: { dataSourceRef } });
    for (const _ of [1, 2]) assert.equal((await rig.provision(claim)).kind, 'done');
    assert.equal(creates(), 0);
    const event = 'Normal Provisioning Assuming an external populator will provision the volume';
    assert.deepEqual(rig.messages(), [event, event]);
    assert.deepEqual(
      rig.events.map(({ component, isAlwaysTold }) => [component, isAlwaysTold]),
      [1, 2].map(() => ['external-provisioner', true]),
    );
  });

  it('removes our finalizer in a later run from a source whose clones are done (K-05)', async () => {
    const source = await rig.claim();
    const { namespace = '', name } = source.metadata;
    const ref = { namespace, name };
    const body = { metadata: { finalizers: [CLONE_PROTECTION] }, spec: { volumeName: 'bound' } };
    await rig.kube.patch(claims, ref, { type: 'merge', body });
    await rig.kube.delete(claims, ref);
    const given = (...open: string[]): Partial<Dependencies> => ({
      ...rig.able('CLONE_VOLUME'),
      openSources: () => Promise.resolve(new Set(open)),
    });
    const open = given(`${claims.plural}/${namespace}/${name}`);
    assert.equal((await rig.provision(source, open)).kind, 'running');
    const note = 'all clones are created: our finalizer is removed';
    assert.deepEqual(await rig.provision(source, given()), { kind: 'done', note });
    assert.equal(await rig.claimNow(source), undefined);
  });

  it('plans anew, with the edited class, after the driver has refused (P-10, P-101)', async () => {
    const claim = await rig.claim({ parameters: { type: 'a' } });
    rig.failWith('Internal', 'no');
    await rig.provision(claim);
    rig.endFaults();
    const cls = rig.parts.classOf(claim.spec.storageClassName ?? '');
    assert.ok(cls);
    await rig.provision(claim, { classOf: () => ({ ...cls, parameters: { type: 'b' } }) });
    assert.deepEqual(
      requests().map(({ parameters }) => parameters['type']),
      ['a', 'b'],
    );
  });

  it('reports an answer without a volume, after which there may be one (R-42)', async () => {
    const claim = await rig.claim();
    rig.answerWith({});
    assert.equal((await rig.provision(claim)).kind, 'retry');
    assert.equal(await rig.stateOf(claim), 'open');
    assert.match(rig.messages()[0] ?? '', /CreateVolume without a volume; report this to /);
    assert.deepEqual(rig.callsOf('DeleteVolume'), []);
  });

  it('records no success if the claim was deleted during a long call', async () => {
    const claim = await rig.claim();
    let aheadMs = 0;
    rig.onCall = async ({ method }) => {
      if (method !== 'CreateVolume') return;
      await rig.removeClaim(claim);
      aheadMs = 10_500;
    };
    const clock = { nowMs: () => Date.now() + aheadMs, sleep: systemClock.sleep };
    assert.equal((await rig.provision(claim, { clock })).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
    assert.deepEqual(rig.messages(), []);
  });

  describe('when the claim’s PV exists', () => {
    const over = { doubtMs: -1 };

    it('sends no second call, with whole UIDs (P-02, R-01)', async () => {
      const claim = await rig.claim();
      await rig.provision(claim);
      assert.equal((await rig.provision(claim, {}, over)).kind, 'done');
      assert.deepEqual([creates(), rig.messages().length], [1, 1]);
    });

    it('sends no second call, with names of another form (R-02)', async () => {
      const claim = await rig.claim();
      const named = options({ volumeNamePrefix: 'test', volumeNameUuidLength: 12 });
      await rig.provision(claim, named);
      const name = `test-${claim.metadata.uid.replaceAll('-', '').slice(0, 12)}`;
      assert.equal(requests()[0]?.name, name);
      assert.ok(await rig.kube.get<Volume>(volumes, { name }));
      assert.equal((await rig.provision(claim, named, over)).kind, 'done');
      assert.equal(creates(), 1);
    });

    it('takes it for the volume if a first run has the driver answer again', async () => {
      const claim = await rig.claim();
      await rig.provision(claim);
      const before = await rig.volumeOf(claim);
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.deepEqual(await rig.volumeOf(claim), before);
    });

    it('parks one with another handle: it is reported, and nothing is deleted', async () => {
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
      const exit = `sutler forget ${claim.metadata.uid} --driver-name=sample.csi.sutler.dev`;
      assert.ok(rig.messages().at(-1)?.endsWith(`${exit} --why=REASON`), rig.messages().at(-1));
      assert.deepEqual(await rig.volumeOf(claim), before);
      assert.deepEqual(rig.callsOf('DeleteVolume'), []);
    });

    it('reports one of that name that belongs to another claim, and leaves it alone', async () => {
      const claim = await rig.claim();
      await foreignPv(`pvc-${claim.metadata.uid}`);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.match(rig.messages()[0] ?? '', /belongs to another claim/);
      assert.deepEqual(rig.callsOf('DeleteVolume'), []);
    });
  });

  describe('when the UIDs of two claims begin alike', () => {
    let shortened: Partial<Dependencies>;
    let first: Claim;
    let second: Claim;
    const nameOf = ({ metadata }: Claim): string => `short-${metadata.uid.charAt(0)}`;
    before(async () => {
      shortened = options({ volumeNamePrefix: 'short', volumeNameUuidLength: 1 });
      // 17 claims at most, until two UIDs begin with the same digit.
      const byDigit = new Map<string, Claim>();
      for (;;) {
        second = await rig.claim({ className: 'shared' });
        const digit = second.metadata.uid.charAt(0);
        const other = byDigit.get(digit);
        if (other !== undefined) {
          first = other;
          return;
        }
        byDigit.set(digit, second);
      }
    });
    const removePv = async (): Promise<void> => {
      const ref = { name: nameOf(first) };
      if ((await rig.kube.get(volumes, ref)) === undefined) return;
      const body = { metadata: { finalizers: null } };
      await rig.kube.patch(volumes, ref, { type: 'merge', body });
      await rig.kube.delete(volumes, ref);
    };
    beforeEach(removePv);
    const assertRefused = async (claim: Claim, message: string, given = shortened) => {
      await rig.reset();
      assert.equal((await rig.provision(claim, given)).kind, 'retry');
      assert.equal(creates(), 0, 'nothing is sent');
      assert.deepEqual(rig.messages(), [`Warning ProvisioningFailed ${message}`]);
    };
    const belongsTo = (claim: Claim) =>
      `volume name ${nameOf(claim)} belongs to the claim with UID ${claim.metadata.uid}, ` +
      'whose UID begins alike; raise --volume-name-uuid-length, or create this claim again';

    it('refuses the second while the PV of the first exists', async () => {
      assert.equal((await rig.provision(first, shortened)).kind, 'done');
      await assertRefused(second, belongsTo(first));
    });

    it('refuses the first once the second has the name', async () => {
      assert.equal((await rig.provision(second, shortened)).kind, 'done');
      await assertRefused(first, belongsTo(second));
    });

    it('refuses a claim in each run while a PV of that name belongs to no claim', async () => {
      const claim = await rig.claim();
      const name = `none-${claim.metadata.uid.charAt(0)}`;
      await foreignPv(name);
      const message =
        `PersistentVolume ${name} belongs to no claim and has the name that this claim’s ` +
        'volume would get; delete it, or create this claim again';
      const given = options({ volumeNamePrefix: 'none', volumeNameUuidLength: 1 });
      await assertRefused(claim, message, given);
      assert.equal((await rig.provision(claim, given)).kind, 'retry', 'its second run');
    });
  });

  describe('secrets', () => {
    const text = 'very-secret';

    it('reach the driver but not Redis, and the PV refers to others (B-12)', async () => {
      const claim = await rig.claim({
        parameters: {
          ...WITH_SECRET,
          'csi.storage.k8s.io/node-stage-secret-name': 'staging',
          'csi.storage.k8s.io/node-stage-secret-namespace': 'default',
        },
      });
      await rig.secret(claim.metadata.name, { key: text });
      await rig.loseAnswer(claim);
      const [request] = requests();
      assert.deepEqual([request?.secrets, request?.parameters], [{ key: text }, {}]);
      const dump: unknown[] = [];
      for (const key of await rig.redis.keys('*'))
        dump.push(await rig.redis.dump(key), await rig.redis.hgetall(key).catch(() => undefined));
      assert.ok(dump.length > 0);
      for (const form of ['utf8', 'base64'] as const)
        assert.ok(!JSON.stringify(dump).includes(Buffer.from(text).toString(form)));
      await rig.provision(claim);
      assert.deepEqual((await rig.volumeOf(claim))?.spec.csi?.nodeStageSecretRef, {
        name: 'staging',
        namespace: 'default',
      });
    });

    it('are removed from messages of the driver that quote them', async () => {
      const claim = await rig.claim({ parameters: WITH_SECRET });
      await rig.secret(claim.metadata.name, { key: text });
      rig.failWith('Internal', `can not log in with ${text}`);
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'retry');
      assert.match(outcome.reason, /can not log in with \*\*\*stripped\*\*\*$/);
      assert.ok(!JSON.stringify(rig.events).includes(text));
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
      const [sent] = rig.callsOf(method)[0]?.metadata.get('traceparent') ?? [];
      assert.match(String(sent), new RegExp(`^00-${trace}-[0-9a-f]{16}-01$`));
    }
  });

  it('sends nothing while Redis is down', async () => {
    const claim = await rig.claim();
    const { plain } = rig.jobs;
    const { kube } = rig.kubeWith({
      get: (...args) => (plain.disconnect(), rig.kube.get(...args)),
    });
    assert.equal((await rig.provision(claim, { kube })).kind, 'later');
    await plain.connect();
    assert.equal(creates(), 0);
  });
});
