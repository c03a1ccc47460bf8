import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { FollowedVersions } from '#src/ingest/objects/followed-versions.ts';
import type { KeptChange } from '#src/ingest/objects/pending-claim-cache.ts';
import { KeptVolumes, type KeptVolumesOptions } from '#src/ingest/objects/kept-volumes.ts';
import { triageVolume } from '#src/ingest/objects/predicates.ts';
import type { Volume } from '#src/kube/objects.ts';
import { silentLog } from '#src/runtime/log.ts';
import { shouldDelete } from '#src/volumes/deletion.ts';
import { identityOf, mayBeSame } from '#src/volumes/handles.ts';
import { aVolume, DRIVER } from '../../volumes/builders.ts';

const OTHER = 'other.example';

/** KeptVolumes, and what it asked for and reported. */
function open(o: Partial<KeptVolumesOptions> = {}) {
  const reads = new Set<string>();
  const changes: KeptChange<Volume>[] = [];
  const freed: string[] = [];
  const kept = new KeptVolumes({
    drivers: () => [{ name: DRIVER }],
    followed: new FollowedVersions(
      () => undefined,
      () => undefined,
    ),
    read: (name) => void reads.add(name),
    onChange: (change) => void changes.push(change),
    onHandleFreed: ({ metadata }) => void freed.push(metadata.name),
    onSharing: () => undefined,
    onListed: () => undefined,
    log: silentLog,
    ...o,
  });
  return { kept, reads, changes, freed };
}

let versions = 0;
const bound = (name: string, volumeHandle: string, driver = DRIVER): Volume =>
  aVolume({
    metadata: {
      name,
      uid: `uid-${name}`,
      resourceVersion: `${++versions}`,
      annotations: { 'pv.kubernetes.io/provisioned-by': driver },
    },
    spec: { csi: { driver, volumeHandle }, claimRef: { uid: `claim-${name}` } },
    phase: 'Bound',
  });
const released = (volume: Volume): Volume => ({
  ...volume,
  metadata: { ...volume.metadata, resourceVersion: `${++versions}` },
  status: { phase: 'Released' },
});
const inTree = (name: string, pdName: string, zone?: string): Volume => ({
  ...aVolume({
    metadata: {
      name,
      uid: name,
      resourceVersion: `${++versions}`,
      annotations: {},
      ...(zone === undefined ? {} : { labels: { 'topology.kubernetes.io/zone': zone } }),
    },
  }),
  spec: { gcePersistentDisk: { pdName }, persistentVolumeReclaimPolicy: 'Delete' },
});

describe('KeptVolumes', () => {
  it('keeps nothing of a bound volume, and reports when it needs a job', () => {
    const { kept, changes } = open();
    const volume = bound('a', 'h');
    kept.put(volume, 'listed');
    assert.deepEqual([kept.size, kept.hasVolume('claim-a')], [0, true]);
    kept.put(released(volume), 'modified');
    assert.equal(kept.get('a')?.status?.phase, 'Released');
    const last = changes.at(-1);
    assert.deepEqual([last?.type, last?.isModified, last?.previous], ['added', true, undefined]);
    kept.put(released(volume), 'modified');
    assert.equal(changes.at(-1)?.previous?.status?.phase, 'Released');
  });

  it('refuses to compare a second PV of a handle until the first is read', () => {
    const { kept, reads } = open();
    const [first, second] = [bound('a', 'h'), released(bound('b', 'h'))];
    kept.put(first, 'added');
    kept.put(second, 'added');
    assert.deepEqual([...reads], ['a']);
    assert.ok(!kept.isComparable(second));
    assert.deepEqual([...kept.sharedOf(DRIVER)], [['h', ['b', 'a']]], 'published at once');
    kept.wasRead('a', first);
    assert.ok(kept.isComparable(second));
    assert.deepEqual([kept.findOther(second), kept.findOther(first)], ['a', 'b']);
    assert.deepEqual([...kept.sharedOf(DRIVER)], [['h', ['a', 'b']]]);
  });

  it('frees the other PV when one of two is deleted, and keeps it only if it needs a job', () => {
    for (const other of [bound('b', 'h'), released(bound('b', 'h'))]) {
      const { kept, freed } = open();
      const first = bound('a', 'h');
      kept.put(first, 'added');
      kept.put(other, 'added');
      kept.wasRead('a', first);
      freed.length = 0;
      kept.remove(first);
      assert.deepEqual(freed, ['b']);
      assert.equal(kept.get('b') !== undefined, other.status?.phase === 'Released');
      assert.deepEqual([kept.findOther(other), [...kept.sharedOf(DRIVER)]], [undefined, []]);
    }
  });

  it('tells PVs apart whose handles only have the same hash', () => {
    const { kept, reads } = open({ hash: () => 1 });
    const [a, b] = [released(bound('a', 'one')), bound('b', 'two')];
    kept.put(b, 'added');
    kept.put(a, 'added');
    kept.wasRead([...reads][0] ?? '', b);
    assert.deepEqual(
      [kept.isComparable(a), kept.findOther(a), [...kept.sharedOf(DRIVER)]],
      [true, undefined, []],
    );
  });

  it('compares in-tree PVs of one disk by their zones', () => {
    const { kept } = open({ drivers: () => [{ name: 'pd.csi.storage.gke.io' }] });
    const [a, b] = [inTree('a', 'disk', 'us-central1-a'), inTree('b', 'disk', 'us-central1-b')];
    for (const each of [a, b]) kept.put(each, 'added');
    kept.wasRead('a', a);
    assert.equal(kept.findOther(a), undefined);
    kept.put(inTree('c', 'disk'), 'added');
    assert.deepEqual([kept.findOther(a), kept.findOther(b)], ['c', 'c']);
  });

  it('compares no PVs of drivers that are not served', () => {
    const { kept, reads } = open();
    for (const name of ['a', 'b']) kept.put(bound(name, 'h', OTHER), 'added');
    assert.deepEqual([reads.size, kept.size, kept.hasVolume('claim-a')], [0, 0, true]);
  });

  it('reports a PV that another of its name replaced as deleted and added', () => {
    const { kept, changes } = open();
    const volume = released(bound('a', 'h'));
    kept.put(volume, 'added');
    kept.put({ ...volume, metadata: { ...volume.metadata, uid: 'next' } }, 'modified');
    assert.deepEqual(
      changes.map(({ type, isModified }) => [type, isModified]),
      [
        ['added', false],
        ['deleted', undefined],
        ['added', false],
      ],
    );
  });
});

/** A cluster whose events are delivered, lost or doubled; lost ones are made up for by a list. */
class Cluster {
  readonly volumes = new Map<string, Volume>();
  readonly asked = new Set<string>();
  readonly jobs = new Set<string>();
  isServingOther = false;
  readonly #names = ['a', 'b', 'c', 'd'];
  readonly #state: ReturnType<typeof open>;
  #hasLost = false;

  constructor(hash: (text: string) => number) {
    const triage = (volume: Volume): void => {
      if (!this.kept.isComparable(volume)) return;
      for (const driver of this.drivers)
        if (triageVolume(volume, driver, (each) => this.kept.findOther(each)).kind === 'job')
          this.jobs.add(volume.metadata.uid);
    };
    this.#state = open({
      hash,
      drivers: () => this.drivers,
      read: (name) => void this.asked.add(name),
      onChange: ({ type, object }) => type !== 'deleted' && triage(object),
      onHandleFreed: triage,
    });
    this.relist();
  }

  get kept(): KeptVolumes {
    return this.#state.kept;
  }

  get drivers() {
    return this.isServingOther ? [{ name: DRIVER }, { name: OTHER }] : [{ name: DRIVER }];
  }

  act(kind: number, which: number, detail: number): void {
    const name = this.#names[which % this.#names.length] ?? 'a';
    const known = this.volumes.get(name);
    if (kind === 0) this.relist();
    else if (kind === 1) this.answer();
    else if (kind === 2) this.serveOther();
    else if (known === undefined) this.#create(name, detail);
    else if (kind < 6) this.#store(released(known), 'modified', detail);
    else {
      this.volumes.delete(name);
      this.#deliver(() => this.kept.remove(known), detail);
    }
  }

  serveOther(): void {
    this.isServingOther = true;
    this.relist();
  }

  relist(): void {
    this.#hasLost = false;
    this.kept.beginList();
    for (const volume of this.volumes.values()) this.kept.put(volume, 'listed');
    this.kept.endList();
  }

  /** Answers what was asked for. */
  answer(): void {
    for (const name of this.asked) this.kept.wasRead(name, this.volumes.get(name));
    this.asked.clear();
  }

  settle(): void {
    if (this.#hasLost) this.relist();
    while (this.asked.size > 0) this.answer();
  }

  #create(name: string, detail: number): void {
    const fresh = bound(name, `h${detail % 3}`, detail % 4 === 0 ? OTHER : DRIVER);
    const uid = `uid-${name}-${versions}`;
    this.#store({ ...fresh, metadata: { ...fresh.metadata, uid } }, 'added', detail);
  }

  #store(volume: Volume, how: 'added' | 'modified', detail: number): void {
    this.volumes.set(volume.metadata.name, volume);
    this.#deliver(() => this.kept.put(volume, how), detail);
  }

  /** An event is lost only with all that follow, until a list. */
  #deliver(event: () => void, detail: number): void {
    if (detail % 7 === 0) this.#hasLost = true;
    if (this.#hasLost) return;
    event();
    if (detail % 5 === 0) event();
  }
}

function check({ kept, volumes, drivers, jobs }: Cluster): void {
  const all = [...volumes.values()];
  const isServed = (volume: Volume) =>
    drivers.some(({ name }) => name === identityOf(volume)?.driver);
  for (const volume of all) {
    const others = all.filter(
      (other) => other !== volume && isServed(volume) && mayBeSame(other, volume),
    );
    assert.equal(kept.findOther(volume) !== undefined, others.length > 0, 'a shared handle');
    assert.ok(kept.isComparable(volume), 'everything is read');
    const needsJob = drivers.some((driver) => shouldDelete(volume, driver).kind !== 'ignore');
    assert.ok(!needsJob || kept.get(volume.metadata.name) !== undefined, 'kept for its job');
    if (needsJob && others.length === 0)
      assert.ok(jobs.has(volume.metadata.uid), 'its job was enqueued');
  }
  for (const { name } of drivers) {
    const ids = all.map(identityOf).filter((identity) => identity?.driver === name);
    const shared = ids.filter((one, i) => ids.some((other, j) => i !== j && other?.id === one?.id));
    assert.deepEqual(
      new Set(kept.sharedOf(name).keys()),
      new Set(shared.map((identity) => identity?.id)),
    );
  }
  for (const name of ['a', 'b', 'c', 'd'])
    assert.equal(kept.hasVolume(`claim-${name}`), volumes.has(name), 'a claim with a volume');
}

describe('KeptVolumes knows in the end what a cache of all PVs would,', () => {
  for (const [title, hash] of [
    ['with hashes that are all different', undefined],
    ['with hashes that are mostly alike', (text: string) => text.length % 2],
    ['with hashes that are all alike', () => 0],
  ] as const)
    it(`after any events, lists and reads, ${title}`, () => {
      const step = fc.tuple(fc.nat(8), fc.nat(3), fc.nat(34));
      const byText = new Map<string, number>();
      const exact = (text: string): number =>
        byText.get(text) ?? byText.set(text, byText.size).size - 1;
      fc.assert(
        fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
          const cluster = new Cluster(hash ?? exact);
          for (const [kind, which, detail] of steps) cluster.act(kind, which, detail);
          cluster.settle();
          check(cluster);
        }),
        { numRuns: 400 },
      );
    });
});
