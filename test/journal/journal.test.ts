import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Journal } from '#src/journal/journal.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { createLogger } from '#src/runtime/log.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';
import { aClaim, aClass, DRIVER } from '../volumes/builders.ts';

const PLACE = { driver: DRIVER, lease: 'test-driver', namespace: 'default' };

describe('the journal', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let journal: Journal;
  let ticks: NodeJS.Timeout[];
  let gone: string[];
  let lines: string[];

  const open = (): Journal => {
    const opened = new Journal({
      ...PLACE,
      client: kube,
      holder: 'test',
      onGone: (uids) => gone.push(...uids),
      log: createLogger({
        name: 'test',
        verbosity: 0,
        format: 'text',
        write: (line) => void lines.push(line),
      }),
    });
    ticks.push(setInterval(() => void opened.tidy(), 1_000));
    return opened;
  };
  const claim = (uid: string, spec: Partial<Claim['spec']> = {}): Claim =>
    aClaim({ metadata: { uid, name: uid }, spec });
  const note = (uid: string) => ({ claim: claim(uid), cls: aClass() });
  const stored = async (): Promise<readonly string[]> =>
    (await listJournal(kube, PLACE)).map(({ uid }) => uid).toSorted();
  const objects = async (): Promise<readonly Lease[]> =>
    (await kube.list<Lease>(leases, { namespace: 'default' })).items;
  const names = async (): Promise<readonly string[]> =>
    (await objects()).map(({ metadata: { name } }) => name).toSorted();
  const leaseNamed = (name: string): Promise<Lease | undefined> =>
    kube.get<Lease>(leases, { namespace: 'default', name });
  const writes = (): number => {
    const counts = cluster.api.requests.snapshot();
    const of = (verb: string): number => counts[`${verb} leases`] ?? 0;
    return of('create') + of('update') + of('patch') + of('delete');
  };
  const untilGone = (...uids: readonly string[]): Promise<void> =>
    until(() => uids.every((uid) => gone.includes(uid)), `${uids.join()} have left`);

  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(() => cluster.close());
  beforeEach(async () => {
    ticks = [];
    gone = [];
    lines = [];
    journal = open();
    await journal.begin(1, () => true);
    cluster.api.requests.reset();
  });
  afterEach(async () => {
    ticks.forEach(clearInterval);
    cluster.api.faults.clear();
    for (const { metadata } of await objects()) await kube.delete(leases, metadata);
  });

  describe('adds', () => {
    it('an entry that the API server has when the call resolves', async () => {
      await journal.add([note('a')]);
      assert.deepEqual(await stored(), ['a']);
      assert.equal(journal.objectOf('a'), 'test-driver-journal-0');
    });

    it('claims that come together with one write', async () => {
      await journal.add(['a', 'b', 'c'].map(note));
      assert.equal(writes(), 1);
      assert.deepEqual(await stored(), ['a', 'b', 'c']);
    });

    it('200 claims with one write', async () => {
      await journal.add(Array.from({ length: 200 }, (_, i) => note(`c${i}`)));
      assert.equal(writes(), 1);
      assert.equal((await stored()).length, 200);
    });

    it('nothing for a claim that it has', async () => {
      await journal.add([note('a')]);
      cluster.api.requests.reset();
      await journal.add([note('a')]);
      assert.deepEqual(cluster.api.requests.snapshot(), {});
    });

    it('a second batch beside the first', async () => {
      await Promise.all([journal.add([note('a')]), journal.add([note('b')])]);
      assert.deepEqual(await stored(), ['a', 'b']);
      assert.deepEqual(await names(), ['test-driver-journal-0']);
    });

    it('what planning needs of the claim and its class', async () => {
      await journal.add([note('a')]);
      const [entry] = await listJournal(kube, PLACE);
      assert.deepEqual(entry?.claim.spec, aClaim().spec);
      assert.equal(entry.cls?.provisioner, DRIVER);
    });

    it('more than fits into an object to several, each below 256 KiB', async () => {
      // A source makes an entry longer.
      const dataSource = { kind: 'x'.repeat(2_000), name: 'y' };
      const many = Array.from({ length: 300 }, (_, i) => ({
        claim: claim(`c${i}`, { dataSource }),
        cls: undefined,
      }));
      await journal.add(many);
      assert.equal((await stored()).length, 300);
      assert.deepEqual(
        await names(),
        [0, 1, 2, 3].map((i) => `test-driver-journal-${i}`),
      );
    });

    it('a claim with annotations of 250 kB without them', async () => {
      const annotations = { ...aClaim().metadata.annotations, note: 'x'.repeat(250_000) };
      const large = aClaim({ metadata: { uid: 'large', annotations } });
      await journal.add([{ claim: large, cls: aClass() }]);
      assert.deepEqual(await stored(), ['large']);
    });

    it('a claim whose class has 150 kB with it', async () => {
      const parameters = { list: 'x'.repeat(150_000) };
      await journal.add([{ claim: claim('a'), cls: aClass({ parameters }) }]);
      const [entry] = await listJournal(kube, PLACE);
      assert.deepEqual([entry?.uid, entry?.cls?.parameters], ['a', parameters]);
    });

    it('nothing to its memory where the API server refuses the write', async () => {
      const action = { kind: 'status', code: 500 } as const;
      cluster.api.faults.inject({ action, plural: 'leases', verb: 'update', times: Infinity });
      await assert.rejects(journal.add([note('a')]), KubeError);
      assert.equal(journal.has('a'), false);
      cluster.api.faults.clear();
      await journal.add([note('a')]);
      assert.deepEqual(await stored(), ['a']);
    });

    it('an entry once where the answer to its write was lost', async () => {
      await journal.add([note('a')]);
      const action = { kind: 'lose-answer' } as const;
      cluster.api.faults.inject({ action, plural: 'leases', verb: 'update', times: 1 });
      await journal.add([note('b')]).catch(() => undefined);
      await journal.add([note('b'), note('c')]);
      assert.deepEqual(await stored(), ['a', 'b', 'c']);
    });
  });

  describe('lets entries leave', () => {
    it('with the next write', async () => {
      await journal.add([note('a'), note('b')]);
      journal.finish(['a']);
      assert.deepEqual([journal.has('a'), journal.isFinished('a')], [true, true]);
      await journal.add([note('c')]);
      assert.deepEqual(await stored(), ['b', 'c']);
      assert.deepEqual([gone, journal.has('a')], [['a'], false]);
      assert.equal(writes(), 2);
    });

    it('soon if somebody waits', async () => {
      await journal.add([note('a'), note('b')]);
      journal.finish(['a']);
      journal.hasten();
      await untilGone('a');
      assert.deepEqual(await stored(), ['b']);
    });

    it('soon if all of an object are finished, with one write', async () => {
      await journal.add([note('a'), note('b')]);
      cluster.api.requests.reset();
      journal.finish(['a', 'b']);
      await untilGone('a', 'b');
      assert.deepEqual([await stored(), writes()], [[], 1]);
    });

    it('not while others of the object are not finished', async () => {
      await journal.add([note('a'), note('b')]);
      cluster.api.requests.reset();
      journal.finish(['a']);
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      assert.equal(writes(), 0);
    });

    it('and keeps the first object, which is needed most', async () => {
      await journal.add([note('a')]);
      journal.finish(['a']);
      await untilGone('a');
      assert.deepEqual(await names(), ['test-driver-journal-0']);
    });

    describe('from further objects', () => {
      const fill = async (): Promise<void> => {
        const dataSource = { kind: 'x'.repeat(20_000), name: 'y' };
        await journal.add([{ claim: claim('large', { dataSource }), cls: undefined }]);
        await journal.add([note('b')]);
        assert.equal(journal.objectOf('b'), 'test-driver-journal-1');
        cluster.api.requests.reset();
        journal.finish(['b']);
      };

      it('and deletes one that is empty', async () => {
        await fill();
        await untilGone('b');
        assert.deepEqual(await names(), ['test-driver-journal-0']);
        assert.equal(writes(), 1);
      });

      it('and empties it where the account may not delete Leases', async () => {
        const action = { kind: 'status', code: 403 } as const;
        cluster.api.faults.inject({ action, plural: 'leases', verb: 'delete', times: Infinity });
        await fill();
        await untilGone('b');
        assert.deepEqual([await stored(), (await names()).length], [['large'], 2]);
        cluster.api.faults.clear();
      });

      it('and uses an empty one again', async () => {
        await fill();
        await untilGone('b');
        await journal.add([note('c')]);
        assert.equal(journal.objectOf('c'), 'test-driver-journal-1');
        assert.deepEqual(await stored(), ['c', 'large']);
      });
    });

    it('once more where the write failed', async () => {
      await journal.add([note('a')]);
      const action = { kind: 'status', code: 500 } as const;
      cluster.api.faults.inject({ action, plural: 'leases', verb: 'update', times: 2 });
      journal.finish(['a']);
      await untilGone('a');
      assert.deepEqual(await stored(), []);
    });
  });

  describe('loses nothing', () => {
    it('of another writer, and nothing of its own, where both have written', async () => {
      await journal.add([note('a')]);
      const other = open();
      await other.begin(2, () => true);
      await other.add([note('b')]);
      await journal.add([note('c')]);
      await other.add([note('d')]);
      assert.deepEqual(await stored(), ['a', 'b', 'c', 'd']);
      assert.ok(journal.has('b'));
    });

    it('where its object was deleted by hand: the next write has everything', async () => {
      await journal.add([note('a')]);
      await kube.delete(leases, { namespace: 'default', name: 'test-driver-journal-0' });
      await journal.add([note('b')]);
      assert.deepEqual(await stored(), ['a', 'b']);
    });

    it('where its object was edited by hand: the next write has everything', async () => {
      await journal.add([note('a')]);
      const body = { metadata: { annotations: { 'journal.sutler.dev/a': null } } };
      const ref = { namespace: 'default', name: 'test-driver-journal-0' };
      await kube.patch(leases, ref, { type: 'merge', body });
      await journal.add([note('b')]);
      assert.deepEqual(await stored(), ['a', 'b']);
    });

    it('of a claim that stands in two objects: one entry stays, and leaves when it is finished', async () => {
      await journal.add([note('a')]);
      const lease = await leaseNamed('test-driver-journal-0');
      await kube.create<Lease>(leases, 'default', {
        metadata: {
          name: 'test-driver-journal-1',
          annotations: lease?.metadata.annotations ?? {},
        },
        spec: {},
      });
      const next = open();
      assert.deepEqual(await next.begin(2, () => true), ['a']);
      assert.deepEqual(await stored(), ['a'], 'one of the two has left');
      next.finish(['a']);
      await untilGone('a');
      assert.deepEqual(await stored(), []);
    });

    it('of an entry that can’t be read: it stays, and an operator is told how to remove it', async () => {
      await journal.add([note('a')]);
      const annotations = { 'journal.sutler.dev/broken': '{' };
      const ref = { namespace: 'default', name: 'test-driver-journal-0' };
      await kube.patch(leases, ref, { type: 'merge', body: { metadata: { annotations } } });
      const next = open();
      await next.begin(2, () => true);
      next.finish(['a']);
      await untilGone('a');
      const lease = await leaseNamed('test-driver-journal-0');
      assert.equal(lease?.metadata.annotations?.['journal.sutler.dev/broken'], '{');
      assert.match(
        lines.join(''),
        /kubectl annotate lease -n default test-driver-journal-0 journal\.sutler\.dev\/broken-/,
      );
    });

    it('of its own where its object became another driver’s: it writes it to a new one', async () => {
      await journal.add([note('a'), note('b')]);
      journal.finish(['b']);
      const ref = { namespace: 'default', name: 'test-driver-journal-0' };
      await kube.delete(leases, ref);
      const annotations = { 'sutler.dev/driver': 'other' };
      await kube.create<Lease>(leases, 'default', { metadata: { ...ref, annotations }, spec: {} });
      await journal.add([note('c')]);
      assert.deepEqual(await stored(), ['a', 'c']);
      assert.deepEqual([journal.objectOf('a'), gone], ['test-driver-journal-1', ['b']]);
      assert.deepEqual((await leaseNamed(ref.name))?.metadata.annotations, annotations);
    });

    it('of an object of another driver that has its name: it is left alone', async () => {
      const annotations = { 'sutler.dev/driver': 'other', 'journal.sutler.dev/x': '{}' };
      const metadata = { name: 'test-driver-journal-0', annotations };
      await kube.delete(leases, { namespace: 'default', name: metadata.name });
      await kube.create<Lease>(leases, 'default', { metadata, spec: {} });
      const next = open();
      assert.deepEqual(await next.begin(2, () => true), []);
      await next.add([note('a')]);
      assert.equal(next.objectOf('a'), 'test-driver-journal-1');
      assert.deepEqual(
        (await leaseNamed('test-driver-journal-0'))?.metadata.annotations,
        annotations,
      );
    });
  });

  describe('is begun', () => {
    it('with the entries that an earlier leader has left', async () => {
      await journal.add([note('a'), note('b')]);
      const next = open();
      assert.deepEqual((await next.begin(2, () => true)).toSorted(), ['a', 'b']);
      assert.deepEqual(
        [...next.unfinished()].map(({ claim: { metadata } }) => metadata.name),
        ['a', 'b'],
      );
    });

    it('by a write to each object, so that no write of an earlier leader can succeed', async () => {
      await journal.add([note('a')]);
      const before = await leaseNamed('test-driver-journal-0');
      await open().begin(2, () => true);
      const update = kube.update(
        leases,
        { namespace: 'default', name: 'test-driver-journal-0' },
        before,
      );
      await assert.rejects(update, (error) => error instanceof KubeError && error.code === 409);
    });

    it('without what it knew in an earlier term', async () => {
      await journal.add([note('a')]);
      const next = open();
      await next.begin(2, () => true);
      next.finish(['a']);
      await untilGone('a');
      assert.deepEqual(await journal.begin(3, () => true), []);
    });

    it('again in the same term with what it knows', async () => {
      await journal.add([note('a')]);
      await kube.delete(leases, { namespace: 'default', name: 'test-driver-journal-0' });
      assert.deepEqual(await journal.begin(1, () => true), ['a']);
      assert.deepEqual(await stored(), ['a']);
    });

    it('without a write where nothing is in it', async () => {
      await open().begin(2, () => true);
      assert.equal(writes(), 0);
    });
  });

  describe('of an account without rights on Leases', () => {
    const forbid = (verb: 'list' | 'create' | 'update'): void => {
      const action = { kind: 'status', code: 403 } as const;
      cluster.api.faults.inject({ action, plural: 'leases', verb, times: Infinity });
    };

    it('is off, and says which rule to add', async () => {
      forbid('list');
      assert.deepEqual(await journal.begin(2, () => true), []);
      assert.equal(journal.isOff, true);
      assert.match(
        journal.trouble ?? '',
        /in the namespace default: apiGroups: \[coordination\.k8s\.io\], resources: \[leases\], verbs: \[get, list, create, update\]/,
      );
      assert.equal(lines.length, 1);
    });

    it('takes claims all the same, and writes nothing', async () => {
      forbid('list');
      await journal.begin(2, () => true);
      cluster.api.requests.reset();
      await journal.add([note('a')]);
      assert.deepEqual([journal.has('a'), journal.objectOf('a'), writes()], [false, '', 0]);
    });

    it('is on again when it begins with the rights', async () => {
      await journal.add([note('a')]);
      forbid('list');
      await journal.begin(2, () => true);
      cluster.api.faults.clear();
      assert.deepEqual(await journal.begin(2, () => true), ['a']);
      assert.deepEqual([journal.isOff, journal.trouble], [false, undefined]);
    });

    it('is off also where only the first write is refused', async () => {
      forbid('update');
      await journal.add([note('a')]);
      assert.equal(journal.isOff, true);
    });
  });

  it('tells which entries it has known for longer', async () => {
    await journal.add([note('a')]);
    assert.equal([...journal.unfinished(60_000)].length, 0);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal([...journal.unfinished(10)].length, 1);
  });

  it('tells which claims are not finished', async () => {
    await journal.add([note('a'), note('b')]);
    journal.finish(['a']);
    assert.deepEqual(journal.unfinishedUids(), ['b']);
  });
});
