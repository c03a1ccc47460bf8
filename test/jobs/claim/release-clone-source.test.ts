import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { releaseCloneSource } from '#src/jobs/release-sources.ts';
import { sourceId } from '#src/journal/list-journal.ts';
import { isInvalid, KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { openReleaseRig, type ReleaseRig } from '../release-rig.ts';

const OURS = 'provisioner.storage.kubernetes.io/cloning-protection';
const PVC_PROTECTION = 'kubernetes.io/pvc-protection';
const SOURCE = 'source-pvc';
const fromSource = { dataSource: { kind: 'PersistentVolumeClaim', name: SOURCE } };

describe('releaseCloneSource', () => {
  let rig: ReleaseRig;
  let namespace = '';
  before(async () => {
    rig = await openReleaseRig();
  });
  after(() => rig.close());
  beforeEach(async () => {
    namespace = await rig.namespace();
    rig.openSources = new Set();
  });

  const deps = (change: Partial<Dependencies> = {}) =>
    ({ ...rig.parts, ...change }) as Dependencies;
  const release = (claim: Claim) => releaseCloneSource(deps(), claim);
  /** The source of clones: Bound, and being deleted by default. */
  const source = async ({ finalizers = [OURS], isBeingDeleted = true } = {}): Promise<Claim> => {
    const claim = await rig.claim(namespace, { name: SOURCE, phase: 'Bound', finalizers });
    if (!isBeingDeleted) return claim;
    await rig.kube.delete(claims, { namespace, name: SOURCE });
    return (await current()) ?? claim;
  };
  const current = (): Promise<Claim | undefined> =>
    rig.kube.get<Claim>(claims, { namespace, name: SOURCE });
  const finalizers = async (): Promise<readonly string[]> =>
    (await current())?.metadata.finalizers ?? [];

  it('removes the finalizer from a source whose clone is Bound (K-01)', async () => {
    await rig.claim(namespace, { name: 'destination-pvc', phase: 'Bound', ...fromSource });
    const claim = await source();
    assert.equal((await release(claim))?.kind, 'done');
    assert.deepEqual(await finalizers(), [PVC_PROTECTION], 'other finalizers stay');
  });

  it('parks a source on a clone of it that is Pending (K-02)', async () => {
    const clone = await rig.claim(namespace, { name: 'destination-pvc', ...fromSource });
    const outcome = await release(await source());
    assert.deepEqual(outcome, {
      kind: 'parked',
      reason: `PVC 'destination-pvc' is in 'Pending' state, cloning in progress`,
      until: [
        {
          resource: 'persistentvolumeclaims',
          namespace,
          name: 'destination-pvc',
          seen: clone.metadata.resourceVersion,
        },
      ],
    });
    assert.ok((await finalizers()).includes(OURS));
  });

  it('names the one of several clones that is Pending (K-03)', async () => {
    await rig.claim(namespace, { name: 'destination-pvc0', phase: 'Bound', ...fromSource });
    await rig.claim(namespace, { name: 'destination-pvc1', ...fromSource });
    const outcome = await release(await source());
    assert.ok(outcome?.kind === 'parked');
    assert.equal(
      outcome.reason,
      `PVC 'destination-pvc1' is in 'Pending' state, cloning in progress`,
    );
    assert.ok((await finalizers()).includes(OURS));
  });

  it('ignores clones of a claim of that name in another namespace (K-04)', async () => {
    await rig.claim(await rig.namespace(), { name: 'destination-pvc', ...fromSource });
    assert.equal((await release(await source()))?.kind, 'done');
    assert.ok(!(await finalizers()).includes(OURS));
  });

  it('removes the finalizer from a source that nothing is cloned from (K-05)', async () => {
    await rig.claim(namespace, {
      name: 'another',
      dataSource: { kind: 'PersistentVolumeClaim', name: 'another-source' },
    });
    assert.equal((await release(await source()))?.kind, 'done');
    assert.ok(!(await finalizers()).includes(OURS));
  });

  it('lets the claim vanish if ours was the last finalizer', async () => {
    await source();
    await rig.kube.patch(
      claims,
      { namespace, name: SOURCE },
      { type: 'merge', body: { metadata: { finalizers: [OURS] } } },
    );
    const claim = await current();
    assert.ok(claim !== undefined);
    assert.equal((await release(claim))?.kind, 'done');
    assert.equal(await current(), undefined);
  });

  it('ignores a claim without our finalizer (K-06)', async () => {
    const claim = await source({ finalizers: ['example.com/other'] });
    assert.equal(await release(claim), undefined);
    assert.deepEqual(await finalizers(), claim.metadata.finalizers);
  });

  it('ignores a source that is not being deleted (K-08)', async () => {
    assert.equal(await release(await source({ isBeingDeleted: false })), undefined);
    assert.ok((await finalizers()).includes(OURS));
  });

  it('does nothing for a driver that does not clone', async () => {
    const facts = () => ({
      name: 'd.example',
      pluginCapabilities: new Set<string>(),
      controllerCapabilities: new Set<string>(),
    });
    assert.equal(await releaseCloneSource(deps({ facts }), await source()), undefined);
    assert.ok((await finalizers()).includes(OURS));
  });

  it('keeps a source that a claim in the journal names, even if the clone’s claim is gone', async () => {
    const claim = await source();
    rig.openSources = new Set(['other', sourceId(claims, { namespace, name: SOURCE })]);
    assert.equal((await release(claim))?.kind, 'running');
    assert.ok((await finalizers()).includes(OURS));
    rig.openSources = new Set(['other']);
    assert.equal((await release(claim))?.kind, 'done');
  });

  it('keeps a source while the journal can’t be read', async () => {
    const claim = await source();
    rig.openSources = undefined;
    await assert.rejects(release(claim), KubeError);
    assert.ok((await finalizers()).includes(OURS));
  });

  it('is repeated if the claim changed since it was read', async () => {
    const claim = await source();
    await rig.kube.patch(
      claims,
      { namespace, name: SOURCE },
      { type: 'merge', body: { metadata: { annotations: { a: 'b' } } } },
    );
    assert.equal((await release(claim))?.kind, 'later');
    assert.ok((await finalizers()).includes(OURS));
  });

  it('is done if the claim is gone meanwhile', async () => {
    const claim = await source();
    await rig.kube.patch(
      claims,
      { namespace, name: SOURCE },
      { type: 'merge', body: { metadata: { finalizers: null } } },
    );
    assert.equal(await current(), undefined);
    assert.equal((await release(claim))?.kind, 'done');
  });

  it('removes no finalizer from a claim of that name with another UID', async () => {
    const claim = await source();
    await rig.kube.patch(
      claims,
      { namespace, name: SOURCE },
      { type: 'merge', body: { metadata: { finalizers: null } } },
    );
    await source();
    // Servers answer Conflict or Invalid; either way the next run finds that its claim is gone.
    await release(claim).catch((error: unknown) => assert.ok(isInvalid(error)));
    assert.ok((await finalizers()).includes(OURS));
  });

  it('lists a namespace in pages', async () => {
    const names = Array.from({ length: 510 }, (_, i) => `c${String(i).padStart(3, '0')}`);
    for (let from = 0; from < names.length; from += 40)
      await Promise.all(names.slice(from, from + 40).map((name) => rig.claim(namespace, { name })));
    await rig.claim(namespace, { name: 'z-last', ...fromSource });
    const outcome = await release(await source());
    assert.ok(
      outcome?.kind === 'parked' && outcome.until?.[0]?.name === 'z-last',
      JSON.stringify(outcome),
    );
  });
});
