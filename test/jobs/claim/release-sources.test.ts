import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { releaseCloneSource, releaseRestoredSnapshot } from '#src/jobs/release-sources.ts';
import { sourceId } from '#src/journal/list-journal.ts';
import { isInvalid, KubeError } from '#src/kube/kube-error.ts';
import type { Claim, Snapshot } from '#src/kube/objects.ts';
import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import { claims, snapshots } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { createLogger } from '#src/runtime/log.ts';
import { aSnapshot } from '../../volumes/source-builders.ts';
import { type Rig, useRig } from '../rig.ts';

const OURS = 'provisioner.storage.kubernetes.io/cloning-protection';
const PVC_PROTECTION = 'kubernetes.io/pvc-protection';
const SOURCE = 'source-pvc';

describe('releaseCloneSource', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));
  let namespace = '';
  beforeEach(async () => {
    namespace = await rig.namespace();
  });

  const release = (claim: Claim, change: Partial<Dependencies> = {}) =>
    releaseCloneSource({ ...rig.parts, ...rig.able('CLONE_VOLUME'), ...change }, claim);
  const clone = (name: string, phase?: 'Bound', of = SOURCE, at = namespace) =>
    rig.claim({
      name,
      namespace: at,
      className: 'c',
      spec: { dataSource: { kind: 'PersistentVolumeClaim', name: of } },
      ...(phase === undefined ? {} : { phase }),
    });
  const edit = (metadata: object) =>
    rig.kube.patch<Claim>(
      claims,
      { namespace, name: SOURCE },
      { type: 'merge', body: { metadata } },
    );
  const current = (): Promise<Claim | undefined> =>
    rig.kube.get<Claim>(claims, { namespace, name: SOURCE });
  /** The source of clones: Bound, and being deleted by default. */
  const source = async ({ finalizers = [OURS], isBeingDeleted = true } = {}): Promise<Claim> => {
    const given = { name: SOURCE, namespace, className: 'c', phase: 'Bound', finalizers } as const;
    const claim = await rig.claim(given);
    if (!isBeingDeleted) return claim;
    await rig.kube.delete(claims, { namespace, name: SOURCE });
    return (await current()) ?? claim;
  };
  const finalizers = async (): Promise<readonly string[]> =>
    (await current())?.metadata.finalizers ?? [];
  const assertKept = async (): Promise<void> => assert.ok((await finalizers()).includes(OURS));

  it('removes the finalizer from a source whose clone is Bound (K-01)', async () => {
    await clone('destination-pvc', 'Bound');
    assert.equal((await release(await source()))?.kind, 'done');
    assert.deepEqual(await finalizers(), [PVC_PROTECTION], 'other finalizers stay');
  });

  it('parks a source on a clone of it that is Pending (K-02)', async () => {
    const name = 'destination-pvc';
    const { metadata } = await clone(name);
    const { resourceVersion: seen } = metadata;
    assert.deepEqual(await release(await source()), {
      kind: 'parked',
      reason: `PVC 'destination-pvc' is in 'Pending' state, cloning in progress`,
      until: [{ resource: 'persistentvolumeclaims', namespace, name, seen }],
    });
    await assertKept();
  });

  it('names the one of several clones that is Pending (K-03)', async () => {
    await clone('destination-pvc0', 'Bound');
    await clone('destination-pvc1');
    const outcome = await release(await source());
    assert.ok(outcome?.kind === 'parked');
    assert.match(outcome.reason, /^PVC 'destination-pvc1' is in 'Pending' state/);
    await assertKept();
  });

  it('ignores clones of a claim of that name in another namespace (K-04)', async () => {
    await clone('destination-pvc', undefined, SOURCE, await rig.namespace());
    assert.equal((await release(await source()))?.kind, 'done');
    assert.ok(!(await finalizers()).includes(OURS));
  });

  it('removes the finalizer from a source that nothing is cloned from, and no annotation names (K-05)', async () => {
    await clone('another', undefined, 'another-source');
    const byHand = { annotations: { [STORAGE_PROVISIONER]: null } };
    await source();
    assert.equal((await release(await edit(byHand)))?.kind, 'done');
    assert.ok(!(await finalizers()).includes(OURS));
  });

  it('ignores a claim without our finalizer (K-06)', async () => {
    const claim = await source({ finalizers: ['example.com/other'] });
    assert.equal(await release(claim), undefined);
    assert.deepEqual(await finalizers(), claim.metadata.finalizers);
  });

  it('ignores a source that is not being deleted (K-08)', async () => {
    assert.equal(await release(await source({ isBeingDeleted: false })), undefined);
    await assertKept();
  });

  it('does nothing for a driver that does not clone', async () => {
    assert.equal(await release(await source(), { facts: rig.parts.facts }), undefined);
    await assertKept();
  });

  it('keeps a source that a claim in the journal names, even if the clone’s claim is gone', async () => {
    const claim = await source();
    const open = new Set(['other', sourceId(claims, { namespace, name: SOURCE })]);
    const openSources = () => Promise.resolve(open);
    assert.equal((await release(claim, { openSources }))?.kind, 'running');
    await assertKept();
  });

  it('keeps a source while the journal can’t be read', async () => {
    const claim = await source();
    const openSources = () => Promise.reject(new Error('the journal is away'));
    await assert.rejects(release(claim, { openSources }), /is away/);
    await assertKept();
  });

  it('is repeated if the claim changed since it was read', async () => {
    const claim = await source();
    await edit({ annotations: { a: 'b' } });
    assert.equal((await release(claim))?.kind, 'later');
    await assertKept();
  });

  it('is done if the claim is gone meanwhile', async () => {
    const claim = await source();
    await edit({ finalizers: null });
    assert.equal((await release(claim))?.kind, 'done');
  });

  it('removes no finalizer from a claim of that name with another UID', async () => {
    const claim = await source();
    await edit({ finalizers: null });
    await source();
    // Servers answer Conflict or Invalid; either way the next run finds that its claim is gone.
    await release(claim).catch((error: unknown) => assert.ok(isInvalid(error)));
    await assertKept();
  });
});

describe('releaseRestoredSnapshot', () => {
  const FINALIZER = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
  const FOREIGN = 'snapshot.storage.kubernetes.io/volumesnapshot-bound-protection';
  const source = {
    apiGroup: snapshots.group,
    kind: snapshots.kind,
    namespace: 'ns1',
    name: 'test-snapshot',
    uid: 'snapuid',
    isEchoed: true,
    isReleased: true,
  };
  /** Releases a snapshot in memory.
   * @param code  with which the server refuses to write it
   * @returns its finalizers, and what is logged */
  const release = async (stored: Snapshot | undefined, code?: number) => {
    const lines: string[] = [];
    const write = (line: string): void => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    let now = stored;
    const kube = {
      get: () => Promise.resolve(now),
      update: (_: unknown, __: unknown, object: Snapshot) => {
        if (code !== undefined)
          return Promise.reject(new KubeError({ code, reason: 'x', serverMessage: 'no' }));
        now = object;
        return Promise.resolve(now);
      },
    } as unknown as Dependencies['kube'];
    await releaseRestoredSnapshot(kube, log, source);
    return { finalizers: now?.metadata.finalizers, logged: lines.join('') };
  };
  const used = aSnapshot({ metadata: { finalizers: [FOREIGN, FINALIZER] } });

  it('removes only our finalizer, even while another claim is restored (R-14)', async () =>
    assert.deepEqual(await release(used), { finalizers: [FOREIGN], logged: '' }));

  it('does nothing for a snapshot that is gone, or another of that name', async () => {
    assert.deepEqual(await release(undefined), { finalizers: undefined, logged: '' });
    const other = aSnapshot({ metadata: { ...used.metadata, uid: 'other' } });
    assert.deepEqual((await release(other)).finalizers, [FOREIGN, FINALIZER]);
  });

  it('logs nothing if writing snapshots is forbidden', async () =>
    assert.deepEqual(await release(used, 403), {
      finalizers: [FOREIGN, FINALIZER],
      logged: '',
    }));

  it('logs a warning and leaves it to the sweep if the snapshot changed meanwhile', async () =>
    assert.match((await release(used, 409)).logged, /WARN.*until the next sweep/));
});
