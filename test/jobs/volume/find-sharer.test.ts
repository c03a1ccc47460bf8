import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Volume } from '#src/kube/objects.ts';
import { MAX_SHARERS } from '#src/hints/shared-handles.ts';
import { RedisUnavailable } from '#src/redis/ask-redis.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { openRig, type Rig } from '../rig.ts';
import { countDeletions, createStaticVolume, listWarnings, readAgain } from '../stored-volume.ts';

describe('a deletion whose handle several PVs may have', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  /** What ingest has published for every handle. */
  const published = (names: readonly string[]): Pick<Dependencies, 'sharersOf'> => ({
    sharersOf: () => Promise.resolve(names),
  });
  const namesOf = (...both: Volume[]) => both.map(({ metadata: { name } }) => name);
  const createSecond = ({ spec: { csi } }: Volume) =>
    createStaticVolume(rig, { phase: 'Bound', ...(csi === undefined ? {} : { source: { csi } }) });

  it('is refused with an event that names the other PV, and waits for that PV', async () => {
    const first = await createStaticVolume(rig);
    const second = await createSecond(first);
    const outcome = await rig.remove(first, published(namesOf(first, second)));
    assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
    const { name, resourceVersion: seen } = second.metadata;
    assert.deepEqual(outcome.until, [{ resource: 'persistentvolumes', name, seen }]);
    assert.equal(
      outcome.reason,
      `PersistentVolume ${name} has the same handle, ` +
        'so the volume is kept; remove one of the two by hand',
    );
    assert.deepEqual(listWarnings(rig), [`VolumeFailedDelete ${outcome.reason}`]);
    assert.deepEqual([countDeletions(rig), await rig.doubtMs(first)], [0, undefined]);
  });

  it('goes on if the other PV is gone by now', async () => {
    const first = await createStaticVolume(rig);
    const outcome = await rig.remove(first, published([...namesOf(first), 'gone']));
    assert.equal(outcome.kind, 'done');
    assert.equal(countDeletions(rig), 1);
  });

  it('goes on if the other PV stands for the disk of that name in another zone', async () => {
    const inZone = (zone: string, phase: 'Bound' | 'Released') =>
      createStaticVolume(rig, {
        annotations: { 'pv.kubernetes.io/provisioned-by': 'kubernetes.io/gce-pd' },
        labels: { 'topology.kubernetes.io/zone': zone },
        source: { gcePersistentDisk: { pdName: 'disk' } },
        phase,
      });
    const asGce: Partial<Dependencies> = {
      facts: () => ({
        ...rig.parts.facts(),
        name: 'pd.csi.storage.gke.io',
        inTreeName: 'kubernetes.io/gce-pd',
      }),
    };
    const first = await inZone('us-a1-b', 'Released');
    const far = await inZone('us-a1-c', 'Bound');
    const near = await inZone('us-a1-b', 'Bound');
    const kept = await rig.remove(first, { ...asGce, ...published(namesOf(first, far, near)) });
    assert.equal(kept.kind, 'parked');
    const { kind } = await rig.remove(first, { ...asGce, ...published(namesOf(first, far)) });
    assert.equal(kind, 'done');
  });

  it('waits, without a call, if all PVs are gone that ingest could name', async () => {
    const first = await createStaticVolume(rig);
    const names = Array.from({ length: MAX_SHARERS }, (_, n) => `gone-${n}`);
    const outcome = await rig.remove(first, published(names));
    assert.ok(outcome.kind === 'later');
    assert.match(outcome.reason, /^more PersistentVolumes than ingest could name/);
    assert.deepEqual([countDeletions(rig), await rig.doubtMs(first)], [0, undefined]);
    assert.deepEqual(listWarnings(rig), []);
  });

  it('reads its PV again, without a call, after a look that took more than 2 s', async () => {
    const first = await createStaticVolume(rig);
    let lateMs = 0;
    const outcome = await rig.remove(first, {
      clock: { ...systemClock, nowMs: () => systemClock.nowMs() + lateMs },
      sharersOf: () => {
        lateMs = 2_001;
        return Promise.resolve([]);
      },
    });
    assert.equal(outcome.kind, 'later');
    assert.deepEqual([countDeletions(rig), await rig.doubtMs(first)], [0, undefined]);
  });

  it('sends nothing if PVs can’t be listed where no ingest has published lately', async () => {
    const first = await createStaticVolume(rig);
    const refused = new KubeError({ code: 403, reason: 'Forbidden', serverMessage: 'no' });
    const outcome = await rig.remove(first, { sharersOf: () => Promise.reject(refused) });
    assert.equal(outcome.kind, 'retry');
    assert.equal(countDeletions(rig), 0);
  });

  it('sends and begins nothing if the other PV can’t be read', async () => {
    const first = await createStaticVolume(rig);
    const down = new KubeError({ code: 0, reason: 'Network', serverMessage: 'refused' });
    const outage = kubeWith(rig, {
      get: async (...args) =>
        args[1].name === 'second' ? Promise.reject(down) : rig.kube.get(...args),
    });
    const given = { ...outage, ...published([...namesOf(first), 'second']) };
    assert.equal((await rig.remove(first, given)).kind, 'later');
    assert.deepEqual([countDeletions(rig), await rig.doubtMs(first)], [0, undefined]);
  });

  it('sends nothing if Redis can’t be asked', async () => {
    const first = await createStaticVolume(rig);
    const sharersOf = () => Promise.reject(new RedisUnavailable('Redis is away'));
    assert.equal((await rig.remove(first, { sharersOf })).kind, 'later');
    assert.equal(countDeletions(rig), 0);
    assert.ok(await readAgain(rig, first));
  });

  it('is refused without reading the PV itself again', async () => {
    const first = await createStaticVolume(rig);
    const second = await createSecond(first);
    const reads: string[] = [];
    const counting = kubeWith(rig, {
      get: (...args) => (reads.push(args[1].name), rig.kube.get(...args)),
    });
    await rig.remove(first, { ...counting, ...published(namesOf(first, second)) });
    assert.deepEqual(reads, namesOf(first, second));
  });
});
