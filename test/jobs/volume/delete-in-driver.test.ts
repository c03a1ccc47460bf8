import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CodeName } from '#src/csi/status.ts';
import { MAX_SHARERS } from '#src/hints/shared-handles.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Class, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { reconcileVolume } from '#src/jobs/volume/reconcile-volume.ts';
import { RedisUnavailable } from '#src/redis/ask-redis.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { DRIVER, useRig, type Rig } from '../rig.ts';

const NAME = 'volume.kubernetes.io/provisioner-deletion-secret-name';
const NAMESPACE = 'volume.kubernetes.io/provisioner-deletion-secret-namespace';

describe('DeleteVolume', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const annotated = (name: string) =>
    rig.createStaticVolume({
      annotations: { [NAME]: name, [NAMESPACE]: 'default' },
      spec: { storageClassName: 'gold' },
    });
  const attachment = (name: string, volume: Volume): VolumeAttachment => ({
    metadata: { name, uid: name, resourceVersion: '41' },
    spec: {
      attacher: DRIVER,
      nodeName: 'node-1',
      source: { persistentVolumeName: volume.metadata.name },
    },
  });
  const assertNothingBegun = async (volume: Volume): Promise<void> => {
    assert.equal(rig.countDeletions(), 0);
    assert.equal(await rig.doubtMs(volume), undefined, 'nothing is begun');
  };

  it('gets the annotated secret, with its class (F-12) and without (F-13)', async () => {
    await rig.secret('mine', { token: 'mine' });
    const cls: Class = {
      metadata: { name: 'gold', uid: 'g', resourceVersion: '1' },
      provisioner: DRIVER,
      parameters: { 'csi.storage.k8s.io/provisioner-secret-name': 'half' },
    };
    for (const classOf of [() => cls, () => undefined]) {
      await rig.remove(await annotated('mine'), { classOf });
      assert.deepEqual(rig.lastDeletion().secrets, { token: 'mine' });
    }
    assert.equal(rig.countDeletions(), 2);
  });

  describe('is not sent', () => {
    it('while its secret is missing; the volume parks on the secret (F-15)', async () => {
      const volume = await annotated('gone');
      for (const _ of [1, 2]) {
        const outcome = await rig.remove(volume);
        assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
        const until = [{ resource: 'secrets', namespace: 'default', name: 'gone', seen: '' }];
        assert.deepEqual(outcome.until, until);
      }
      assert.deepEqual(rig.warnings(), [
        'VolumeFailedDelete secret default/gone for deleting this volume does not exist; ' +
          'create it again',
      ]);
      await assertNothingBegun(volume);
    });

    const isSecret = (plural: string): boolean => plural === 'secrets';
    it('while reading its secret is forbidden', async () => {
      const volume = await annotated('hidden');
      const outcome = await rig.remove(volume, rig.refusing('get', 403, isSecret));
      assert.equal(outcome.kind, 'retry');
      assert.deepEqual(rig.warnings(), [
        'VolumeFailedDelete error getting secret hidden in namespace default: not for you; ' +
          'by default sutler may read no secrets: in the namespace of the secret, bind that ' +
          'account to a Role that may get the secret (k8s/secrets-by-name)',
      ]);
      await assertNothingBegun(volume);
    });

    it('while the API server is down', async () => {
      const volume = await annotated('hidden');
      const outcome = await rig.remove(volume, rig.refusing('get', 503, isSecret));
      assert.equal(outcome.kind, 'later');
      assert.deepEqual(rig.warnings(), []);
      await assertNothingBegun(volume);
    });

    it('while the volume is attached; it parks on the attachment (F-04, F-08)', async () => {
      const [volume, other] = [await rig.createStaticVolume(), await rig.createStaticVolume()];
      const { name } = volume.metadata;
      const attachedTo = (of: string) => (of === name ? [attachment('va', volume)] : []);
      const outcome = await rig.remove(volume, { attachedTo });
      assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
      assert.deepEqual(outcome.until, [{ resource: 'volumeattachments', name: 'va', seen: '41' }]);
      const text = `persistentvolume ${name} is still attached to node node-1`;
      assert.deepEqual(rig.warnings(), [`VolumeFailedDelete ${text}`]);
      await assertNothingBegun(volume);
      assert.equal((await rig.remove(other, { attachedTo })).kind, 'done');
    });

    it('by a worker that is stopping', async () => {
      const { uid, name } = (await rig.createStaticVolume()).metadata;
      const run = {
        signal: AbortSignal.abort(),
        queuedMs: 0,
        count: 1,
        lastStatus: () => Promise.resolve(undefined),
        facts: {},
        begun: () => Promise.resolve({ leftMs: undefined, place: '' }),
        mark: () => Promise.reject(new Error('marked')),
      };
      const key = { kind: 'volume', uid, namespace: '', name } as const;
      assert.equal((await reconcileVolume(rig.parts, key, run)).kind, 'later');
      assert.equal(rig.countDeletions(), 0);
    });
  });

  it('leaves its job in doubt unless the driver itself has refused it', async () => {
    const volume = await rig.createReleasedVolume();
    const doubtAfter = async (code: CodeName) => {
      rig.failWith(code, 'busy', 'DeleteVolume');
      await rig.remove(volume);
      return rig.doubtMs(volume);
    };
    assert.equal(await doubtAfter('Internal'), undefined);
    assert.ok(((await doubtAfter('Unavailable')) ?? 0) > 0);
  });

  it('that fails does not show the secrets that it was given', async () => {
    await rig.secret('quoted', { token: 'hush-hush' });
    const volume = await annotated('quoted');
    rig.failWith('Internal', 'login with hush-hush refused', 'DeleteVolume');
    const outcome = await rig.remove(volume);
    assert.ok(!JSON.stringify([outcome, rig.events]).includes('hush-hush'));
    assert.equal(rig.warnings().length, 1);
  });

  describe('of a handle that several PVs may have', () => {
    /** What ingest has published for every handle. */
    const published = (...all: readonly (Volume | string)[]): Pick<Dependencies, 'sharersOf'> => {
      const names = all.map((each) => (typeof each === 'string' ? each : each.metadata.name));
      return { sharersOf: () => Promise.resolve(names) };
    };

    it('is not sent: an event names the other PV, and the volume waits for that', async () => {
      const first = await rig.createStaticVolume();
      const { csi } = first.spec;
      const second = await rig.createStaticVolume({
        phase: 'Bound',
        ...(csi === undefined ? {} : { source: { csi } }),
      });
      const outcome = await rig.remove(first, published(first, second));
      assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
      const { name, resourceVersion: seen } = second.metadata;
      assert.deepEqual(outcome.until, [{ resource: 'persistentvolumes', name, seen }]);
      assert.equal(
        outcome.reason,
        `PersistentVolume ${name} has the same handle, ` +
          'so the volume is kept; remove one of the two by hand',
      );
      assert.deepEqual(rig.warnings(), [`VolumeFailedDelete ${outcome.reason}`]);
      await assertNothingBegun(first);
    });

    it('is sent if the other PV is gone by now', async () => {
      const first = await rig.createStaticVolume();
      assert.equal((await rig.remove(first, published(first, 'gone'))).kind, 'done');
      assert.equal(rig.countDeletions(), 1);
    });

    it('is sent if the other PV stands for the disk of that name in another zone', async () => {
      const inZone = (zone: string, phase: 'Bound' | 'Released') =>
        rig.createStaticVolume({
          annotations: { 'pv.kubernetes.io/provisioned-by': 'kubernetes.io/gce-pd' },
          labels: { 'topology.kubernetes.io/zone': zone },
          source: { gcePersistentDisk: { pdName: 'disk' } },
          phase,
        });
      const facts: Dependencies['facts'] = () => ({
        ...rig.parts.facts(),
        name: 'pd.csi.storage.gke.io',
        inTreeName: 'kubernetes.io/gce-pd',
      });
      const first = await inZone('us-a1-b', 'Released');
      const far = await inZone('us-a1-c', 'Bound');
      const near = await inZone('us-a1-b', 'Bound');
      const kept = await rig.remove(first, { facts, ...published(first, far, near) });
      assert.equal(kept.kind, 'parked');
      assert.equal((await rig.remove(first, { facts, ...published(first, far) })).kind, 'done');
    });

    it('waits if all PVs are gone that ingest could name', async () => {
      const first = await rig.createStaticVolume();
      const names = Array.from({ length: MAX_SHARERS }, (_, n) => `gone-${n}`);
      const outcome = await rig.remove(first, published(...names));
      assert.ok(outcome.kind === 'later');
      assert.match(outcome.reason, /^too many PersistentVolumes may have this handle/);
      await assertNothingBegun(first);
      assert.deepEqual(rig.warnings(), []);
    });

    it('waits after a look that took more than 2 s', async () => {
      const first = await rig.createStaticVolume();
      let lateMs = 0;
      const outcome = await rig.remove(first, {
        clock: { ...systemClock, nowMs: () => systemClock.nowMs() + lateMs },
        sharersOf: () => {
          lateMs = 2_001;
          return Promise.resolve([]);
        },
      });
      assert.equal(outcome.kind, 'later');
      await assertNothingBegun(first);
    });

    it('waits if the other PV can’t be read', async () => {
      const first = await rig.createStaticVolume();
      const outage = rig.refusing('get', 503, (_, name) => name === 'second');
      const outcome = await rig.remove(first, { ...outage, ...published(first, 'second') });
      assert.equal(outcome.kind, 'later');
      await assertNothingBegun(first);
    });

    for (const [title, error, kind] of [
      ['Redis can’t be asked', new RedisUnavailable('Redis is away'), 'later'],
      [
        'PVs can’t be listed where no ingest has published lately',
        new KubeError({ code: 403, reason: 'Forbidden', serverMessage: 'no' }),
        'retry',
      ],
    ] as const)
      it(`waits if ${title}`, async () => {
        const first = await rig.createStaticVolume();
        const outcome = await rig.remove(first, { sharersOf: () => Promise.reject(error) });
        assert.equal(outcome.kind, kind);
        await assertNothingBegun(first);
      });
  });
});
