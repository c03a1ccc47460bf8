import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { GetOptions } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, type ObjectRef, type Resource } from '#src/kube/resources.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { kubeWith, type Parts } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

/** What a server answers whose cache does not get the version. */
const TOO_NEW = {
  code: 504,
  reason: 'Timeout',
  serverMessage: 'Too large resource version: 99, current: 7',
  request: 'get',
};

/** A claim whose volume an earlier run has begun: the driver is at work on it. */
async function begin(rig: Rig): Promise<Claim> {
  const claim = await rig.claim();
  rig.onCall = ({ method }) => {
    if (method === 'CreateVolume') throw new DriverStatus(Code.Aborted, 'at work');
  };
  assert.equal((await rig.provision(claim)).kind, 'running');
  rig.onCall = () => undefined;
  return claim;
}

describe('a run with a copy of the claim', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(async () => {
    await rig.reset();
    rig.cluster.api.requests.reset();
  });

  /** What the job carries: the claim as it was. */
  const copyOf = (claim: Claim): Partial<Parts> => ({
    copies: { claimOf: () => Promise.resolve(claim) },
  });
  const asked = (): Readonly<Record<string, number>> => rig.cluster.api.requests.snapshot();
  const refOf = ({ metadata: { name } }: Claim) => ({ namespace: 'default', name });
  const madeFor = ({ metadata: { uid } }: Claim) =>
    rig.driver.volumes().filter(({ name }) => name === `pvc-${uid}`);

  it('sends the API server one request, which writes the volume', async () => {
    const claim = await rig.claim();
    rig.cluster.api.requests.reset();
    assert.equal((await rig.provision(claim, copyOf(claim))).kind, 'done');
    assert.deepEqual(asked(), { 'create persistentvolumes': 1 });
  });

  it('makes a volume for a claim that was deleted, which the ordinary deletion reclaims', async () => {
    const claim = await rig.claim();
    await rig.kube.delete(claims, refOf(claim));
    assert.equal((await rig.provision(claim, copyOf(claim))).kind, 'done');
    const volume = (await rig.volumeOf(claim)) as Volume;
    assert.equal(volume.spec.claimRef?.uid, claim.metadata.uid);
    // As the volume controller does with a volume whose claim is gone.
    const released = await rig.setPhase(volume, 'Released');
    assert.equal((await rig.remove(released)).kind, 'done');
    assert.notEqual((await rig.volumeOf(claim))?.metadata.deletionTimestamp, undefined);
    assert.deepEqual(madeFor(claim), []);
  });

  it('reads the claim where an earlier run has begun its volume', async () => {
    const claim = await begin(rig);
    rig.cluster.api.requests.reset();
    assert.equal((await rig.provision(claim, copyOf(claim))).kind, 'done');
    assert.equal(asked()['get persistentvolumeclaims'], 1);
    assert.equal(madeFor(claim).length, 1);
  });

  it('reads the claim all the same where --timeout is shorter than a watch may be silent', async () => {
    const claim = await rig.claim();
    rig.cluster.api.requests.reset();
    const change = { ...copyOf(claim), timeoutMs: 1_000 };
    assert.equal((await rig.provision(claim, change)).kind, 'done');
    assert.equal(asked()['get persistentvolumeclaims'], 1);
  });

  it('is tried again where the claim has changed before its finalizer is written', async () => {
    const claim = await rig.claim();
    const body = { metadata: { labels: { changed: 'yes' } } };
    await rig.kube.patch(claims, refOf(claim), { type: 'merge', body });
    const change = { ...copyOf(claim), usesClaimFinalizer: true };
    assert.equal((await rig.provision(claim, change)).kind, 'later');
    assert.deepEqual(madeFor(claim), []);
  });
});

describe('a run without a copy, whose job names a version of the claim', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const NEWER = '99';
  /** Records how claims are read; where `now` is given, the cache has that. */
  const reading = (now?: (claim: Claim) => Claim | undefined) => {
    const versions: (string | undefined)[] = [];
    const { kube } = kubeWith(rig, {
      async get<T>(resource: Resource, ref: ObjectRef, o: GetOptions = {}) {
        const object = await rig.kube.get<T>(resource, ref);
        if (resource !== claims) return object;
        versions.push(o.resourceVersion);
        if (o.resourceVersion === NEWER) throw new KubeError(TOO_NEW);
        return o.resourceVersion === undefined || now === undefined
          ? object
          : (now(object as Claim) as T);
      },
    });
    return { kube, versions };
  };

  it('takes that version or a later one from the API server’s cache', async () => {
    const claim = await rig.claim();
    const { kube, versions } = reading();
    assert.equal((await rig.provision(claim, { kube }, '7')).kind, 'done');
    assert.deepEqual(versions, ['7']);
  });

  it('reads the claim where the cache does not get that version', async () => {
    const claim = await rig.claim();
    const { kube, versions } = reading();
    assert.equal((await rig.provision(claim, { kube }, NEWER)).kind, 'done');
    assert.deepEqual(versions, [NEWER, undefined]);
  });

  it('does not ask a server again at once that has too much to do', async () => {
    const claim = await rig.claim();
    let asked = 0;
    const { kube } = kubeWith(rig, {
      get() {
        asked += 1;
        throw new KubeError({ ...TOO_NEW, code: 429 });
      },
    });
    assert.equal((await rig.provision(claim, { kube }, '7')).kind, 'later');
    assert.equal(asked, 1);
  });

  for (const [title, now] of [
    ['has none', () => undefined],
    ['has one that is bound', (claim: Claim) => ({ ...claim, spec: { volumeName: 'other' } })],
    [
      'has one that is being deleted',
      ({ metadata, ...claim }: Claim) => ({
        ...claim,
        metadata: { ...metadata, deletionTimestamp: '2026-01-01T00:00:00Z' },
      }),
    ],
  ] as const)
    it(`reads the claim where the cache ${title}`, async () => {
      const claim = await rig.claim();
      const { kube, versions } = reading(now);
      assert.equal((await rig.provision(claim, { kube }, '7')).kind, 'done');
      assert.deepEqual(versions, ['7', undefined]);
    });

  it('reads the claim where an earlier run has begun its volume', async () => {
    const claim = await begin(rig);
    const { kube, versions } = reading();
    assert.equal((await rig.provision(claim, { kube }, '7')).kind, 'done');
    assert.deepEqual(versions, ['7', undefined]);
  });

  it('reads the claim where an earlier run has begun its volume, whose class is gone', async () => {
    const claim = await begin(rig);
    const { kube, versions } = reading();
    const outcome = await rig.provision(claim, { kube, classOf: () => undefined }, '7');
    assert.equal(outcome.kind, 'done');
    assert.deepEqual(versions, ['7', undefined]);
  });

  it('reads the claim where --timeout is shorter than a cache may be behind', async () => {
    const claim = await rig.claim();
    const { kube, versions } = reading();
    assert.equal((await rig.provision(claim, { kube, timeoutMs: 1_000 }, '7')).kind, 'done');
    assert.deepEqual(versions, [undefined]);
  });
});
