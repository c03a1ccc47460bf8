import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Journal } from '#src/journal/journal.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Class, Lease } from '#src/kube/objects.ts';
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
  let gone: string[];
  let lines: string[];

  const write = (line: string): void => void lines.push(line);
  const open = (): Journal =>
    new Journal({
      ...PLACE,
      client: kube,
      holder: 'test',
      onGone: (uids) => gone.push(...uids),
      log: createLogger({ name: 'test', verbosity: 0, format: 'text', write }),
    });
  const note = (uid: string, cls: Class = aClass()) => ({
    claim: aClaim({ metadata: { uid, name: uid } }),
    cls,
  });
  /** A source makes an entry longer. */
  const longNote = (uid: string, length: number) => ({
    claim: aClaim({
      metadata: { uid, name: uid },
      spec: { dataSource: { kind: 'x'.repeat(length), name: 'y' } },
    }),
    cls: undefined,
  });
  const FIRST = { namespace: 'default', name: 'test-driver-journal-0' };
  const annotateFirst = (annotations: Readonly<Record<string, string | null>>) =>
    kube.patch(leases, FIRST, { type: 'merge', body: { metadata: { annotations } } });
  const createLease = (name: string, annotations: Readonly<Record<string, string>>) =>
    kube.create<Lease>(leases, 'default', { metadata: { name, annotations }, spec: {} });
  const refuse = (code: number, verb: 'list' | 'update' | 'delete', times = Infinity): unknown =>
    cluster.api.faults.inject({ action: { kind: 'status', code }, plural: 'leases', verb, times });
  const stored = async (): Promise<readonly string[]> =>
    (await listJournal(kube, PLACE)).map(({ uid }) => uid).toSorted();
  const objects = async (): Promise<readonly Lease[]> =>
    (await kube.list<Lease>(leases, { namespace: 'default' })).items;
  const names = async (): Promise<readonly string[]> =>
    (await objects()).map(({ metadata: { name } }) => name).toSorted();
  const annotationsOf = async ({ name } = FIRST) =>
    (await kube.get<Lease>(leases, { ...FIRST, name }))?.metadata.annotations;
  const writes = (): number => {
    const counts = cluster.api.requests.snapshot();
    const of = (verb: string): number => counts[`${verb} leases`] ?? 0;
    return of('create') + of('update') + of('patch') + of('delete');
  };
  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(() => cluster.close());
  beforeEach(async () => {
    gone = [];
    lines = [];
    journal = open();
    await journal.begin(1, () => true);
    cluster.api.requests.reset();
  });
  afterEach(async () => {
    cluster.api.faults.clear();
    for (const { metadata } of await objects()) await kube.delete(leases, metadata);
  });

  describe('adds', () => {
    it('an entry that the API server has when the call resolves', async () => {
      await journal.add([note('a')]);
      assert.deepEqual(await stored(), ['a']);
      assert.equal(journal.objectOf('a'), FIRST.name);
    });

    it('200 claims with one write', async () => {
      await journal.add(Array.from({ length: 200 }, (_, i) => note(`c${i}`)));
      assert.deepEqual([writes(), (await stored()).length], [1, 200]);
    });

    it('nothing for a claim that it has', async () => {
      await journal.add([note('a')]);
      cluster.api.requests.reset();
      await journal.add([note('a')]);
      assert.deepEqual(cluster.api.requests.snapshot(), {});
    });

    it('a second batch beside the first', async () => {
      await Promise.all([journal.add([note('a')]), journal.add([note('b')])]);
      assert.deepEqual([await stored(), await names()], [['a', 'b'], [FIRST.name]]);
    });

    it('more than fits into an object to several, each below 256 KiB', async () => {
      await journal.add(Array.from({ length: 300 }, (_, i) => longNote(`c${i}`, 2_000)));
      assert.equal((await stored()).length, 300);
      const numbers = [0, 1, 2, 3].map((i) => `test-driver-journal-${i}`);
      assert.deepEqual(await names(), numbers);
    });

    it('a claim whose class has 150 kB with it', async () => {
      const parameters = { list: 'x'.repeat(150_000) };
      await journal.add([note('a', aClass({ parameters }))]);
      const [entry] = await listJournal(kube, PLACE);
      assert.deepEqual([entry?.uid, entry?.cls?.parameters], ['a', parameters]);
    });

    it('nothing to its memory where the API server refuses the write', async () => {
      refuse(500, 'update');
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
      assert.deepEqual(journal.unfinishedUids(), ['b']);
      await journal.add([note('c')]);
      assert.deepEqual(await stored(), ['b', 'c']);
      assert.deepEqual([gone, journal.has('a')], [['a'], false]);
      assert.equal(writes(), 2);
    });

    it('soon if somebody waits', async () => {
      await journal.add([note('a'), note('b')]);
      journal.finish(['a']);
      journal.hasten();
      await until(() => gone.includes('a'), 'it has left');
      assert.deepEqual(await stored(), ['b']);
    });

    it('if all of an object are finished, with one write, and keeps the first object', async () => {
      await journal.add([note('a'), note('b')]);
      cluster.api.requests.reset();
      journal.finish(['a', 'b']);
      await journal.tidy();
      assert.deepEqual([gone, await stored(), writes()], [['a', 'b'], [], 1]);
      assert.deepEqual(await names(), [FIRST.name]);
    });

    it('not while others of the object are not finished', async () => {
      await journal.add([note('a'), note('b')]);
      cluster.api.requests.reset();
      journal.finish(['a']);
      await journal.tidy();
      assert.equal(writes(), 0);
    });

    describe('from further objects', () => {
      const emptySecond = async (): Promise<void> => {
        await journal.add([longNote('large', 20_000)]);
        await journal.add([note('b')]);
        assert.equal(journal.objectOf('b'), 'test-driver-journal-1');
        cluster.api.requests.reset();
        journal.finish(['b']);
        await journal.tidy();
      };

      it('and deletes one that is empty', async () => {
        await emptySecond();
        assert.deepEqual([await names(), writes()], [[FIRST.name], 1]);
      });

      it('and empties it where the account may not delete Leases', async () => {
        refuse(403, 'delete');
        await emptySecond();
        assert.deepEqual([await stored(), (await names()).length], [['large'], 2]);
      });

      it('and uses an empty one again', async () => {
        await emptySecond();
        await journal.add([note('c')]);
        assert.equal(journal.objectOf('c'), 'test-driver-journal-1');
        assert.deepEqual(await stored(), ['c', 'large']);
      });
    });

    it('later where the write failed', async () => {
      await journal.add([note('a')]);
      refuse(500, 'update', 1);
      journal.finish(['a']);
      await journal.tidy();
      assert.deepEqual(await stored(), ['a']);
      await journal.tidy();
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

    for (const [what, act] of [
      ['deleted', () => kube.delete(leases, FIRST)],
      ['edited', () => annotateFirst({ 'journal.sutler.dev/a': null })],
    ] as const)
      it(`where its object was ${what} by hand: the next write has everything`, async () => {
        await journal.add([note('a')]);
        await act();
        await journal.add([note('b')]);
        assert.deepEqual(await stored(), ['a', 'b']);
      });

    it('of a claim that stands in two objects: one entry stays, and leaves when it is finished', async () => {
      await journal.add([note('a')]);
      await createLease('test-driver-journal-1', (await annotationsOf()) ?? {});
      const next = open();
      assert.deepEqual(await next.begin(2, () => true), ['a']);
      assert.deepEqual(
        [...next.unfinished()].map(({ uid }) => uid),
        ['a'],
      );
      assert.deepEqual(await stored(), ['a'], 'one of the two has left');
      next.finish(['a']);
      await next.tidy();
      assert.deepEqual(await stored(), []);
    });

    it('of an entry that can’t be read: it stays, and an operator is told how to remove it', async () => {
      await journal.add([note('a')]);
      await annotateFirst({ 'journal.sutler.dev/broken': '{' });
      const next = open();
      await next.begin(2, () => true);
      next.finish(['a']);
      await next.tidy();
      const { 'journal.sutler.dev/a': left, ...rest } = (await annotationsOf()) ?? {};
      assert.deepEqual([left, rest['journal.sutler.dev/broken']], [undefined, '{']);
      assert.match(
        lines.join(''),
        /kubectl annotate lease -n default test-driver-journal-0 journal\.sutler\.dev\/broken-/,
      );
    });

    it('of its own where its object became another driver’s: it writes it to a new one', async () => {
      await journal.add([note('a'), note('b')]);
      journal.finish(['b']);
      await kube.delete(leases, FIRST);
      const annotations = { 'sutler.dev/driver': 'other' };
      await createLease(FIRST.name, annotations);
      await journal.add([note('c')]);
      assert.deepEqual([await stored(), gone], [['a', 'c'], ['b']]);
      assert.equal(journal.objectOf('a'), 'test-driver-journal-1');
      assert.deepEqual(await annotationsOf(), annotations);
    });
  });

  describe('is begun', () => {
    it('by a write to each object, so that no write of an earlier leader can succeed', async () => {
      await journal.add([note('a')]);
      const before = await kube.get<Lease>(leases, FIRST);
      await open().begin(2, () => true);
      const conflict = { name: 'KubeError', code: 409 };
      await assert.rejects(kube.update(leases, FIRST, before), conflict);
    });

    it('without what it knew in an earlier term', async () => {
      await journal.add([note('a')]);
      const next = open();
      await next.begin(2, () => true);
      next.finish(['a']);
      await next.tidy();
      assert.deepEqual(await journal.begin(3, () => true), []);
    });

    it('again in the same term with what it knows', async () => {
      await journal.add([note('a')]);
      await kube.delete(leases, FIRST);
      assert.deepEqual(await journal.begin(1, () => true), ['a']);
      assert.deepEqual(await stored(), ['a']);
    });
  });

  describe('of an account without rights on Leases', () => {
    it('is off, says which rule to add, takes claims all the same, and writes nothing', async () => {
      refuse(403, 'list');
      assert.deepEqual(await journal.begin(2, () => true), []);
      assert.equal(journal.isOff, true);
      assert.match(
        journal.trouble ?? '',
        /in the namespace default: apiGroups: \[coordination\.k8s\.io\], resources: \[leases\], verbs: \[get, list, create, update\]/,
      );
      assert.equal(lines.length, 1);
      cluster.api.requests.reset();
      await journal.add([note('a')]);
      assert.deepEqual([journal.has('a'), journal.objectOf('a'), writes()], [false, '', 0]);
    });

    it('is on again when it begins with the rights', async () => {
      await journal.add([note('a')]);
      refuse(403, 'list');
      await journal.begin(2, () => true);
      cluster.api.faults.clear();
      assert.deepEqual(await journal.begin(2, () => true), ['a']);
      assert.deepEqual([journal.isOff, journal.trouble], [false, undefined]);
    });

    it('is off also where only the first write is refused', async () => {
      refuse(403, 'update');
      await journal.add([note('a')]);
      assert.equal(journal.isOff, true);
    });
  });

  it('tells which entries it has known for longer', async () => {
    await journal.add([note('a')]);
    assert.deepEqual([...journal.unfinished(60_000)], []);
    await until(() => [...journal.unfinished(10)].length === 1, '10 ms have passed');
  });
});
