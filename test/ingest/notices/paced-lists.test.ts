import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { PacedLists, Unwanted } from '#src/ingest/notices/paced-lists.ts';
import type { ListOptions, ListPage } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { claims, type Resource } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';

type Answer = (o: ListOptions) => Promise<ListPage<unknown>>;

describe('paced lists', () => {
  let asked: (string | undefined)[];
  let pauses: number[];
  let answer: Answer;
  let underWay: number;
  let mostAtOnce: number;
  let lists: PacedLists;
  const pageOf = (items: readonly unknown[], continueToken?: string): ListPage<unknown> => ({
    items: [...items],
    resourceVersion: '1',
    ...(continueToken === undefined ? {} : { continueToken }),
  });
  const transform = (raw: unknown): unknown => {
    if (raw === 'unreadable') throw new Error('unreadable');
    return raw;
  };
  /** Three pages with one number each. */
  const threePages: Answer = ({ continueToken = '0' }) => {
    const at = Number(continueToken);
    return Promise.resolve(pageOf([at], at < 2 ? String(at + 1) : undefined));
  };
  const failure = (code: number): KubeError =>
    new KubeError({ code, reason: 'Test', serverMessage: 'no', request: 'list' });
  const listAll = async (isWanted = () => true): Promise<unknown[]> => {
    const items: unknown[] = [];
    for await (const page of lists.pages({ resource: claims, transform, isWanted }))
      items.push(...page);
    return items;
  };
  beforeEach(() => {
    asked = [];
    pauses = [];
    answer = threePages;
    underWay = 0;
    mostAtOnce = 0;
    lists = new PacedLists({
      client: {
        async list<T>(_: Resource, { continueToken }: ListOptions = {}) {
          asked.push(continueToken);
          underWay += 1;
          mostAtOnce = Math.max(mostAtOnce, underWay);
          await systemClock.sleep(10);
          underWay -= 1;
          return (await answer({ continueToken })) as ListPage<T>;
        },
      },
      clock: {
        nowMs: () => Date.now(),
        sleep: async (ms) => {
          pauses.push(ms);
          await Promise.resolve();
        },
      },
      log: silentLog,
    });
  });

  it('give all pages, with a pause after each as long as it took', async () => {
    assert.deepEqual(await listAll(), [0, 1, 2]);
    assert.deepEqual(asked, [undefined, '1', '2']);
    assert.ok(pauses.length >= 2 && pauses.every((ms) => ms >= 9 && ms < 500), String(pauses));
  });

  it('skip an object that can’t be read', async () => {
    answer = () => Promise.resolve(pageOf([1, 'unreadable', 2]));
    assert.deepEqual(await listAll(), [1, 2]);
  });

  it('ask for one page at a time, whoever wants it', async () => {
    const both = await Promise.all([listAll(), listAll()]);
    assert.deepEqual(both, [
      [0, 1, 2],
      [0, 1, 2],
    ]);
    assert.equal(mostAtOnce, 1);
  });

  it('start again, without pauses, when the API server has dropped the snapshot of a list', async () => {
    let refusals = 1;
    answer = (o) =>
      o.continueToken === '1' && refusals-- > 0 ? Promise.reject(failure(410)) : threePages(o);
    assert.deepEqual(await listAll(), [0, 0, 1, 2]);
    assert.deepEqual(pauses.slice(2, 4), [2, 2]);
  });

  it('ask again for a page that failed, and say meanwhile what is wrong', async () => {
    let refusals = 2;
    const troubles: (string | undefined)[] = [];
    answer = (o) => {
      troubles.push(lists.trouble);
      return o.continueToken === '1' && refusals-- > 0
        ? Promise.reject(failure(403))
        : threePages(o);
    };
    assert.deepEqual(await listAll(), [0, 1, 2]);
    assert.deepEqual(asked, [undefined, '1', '1', '1', '2']);
    assert.deepEqual(
      pauses.filter((ms) => ms >= 1_000),
      [1_000, 2_000],
    );
    assert.match(troubles[2] ?? '', /persistentvolumeclaims: /);
    assert.equal(lists.trouble, undefined);
  });

  it('end as soon as nobody wants them, also while pages fail', async () => {
    answer = () => Promise.reject(failure(500));
    await assert.rejects(
      listAll(() => asked.length < 3),
      Unwanted,
    );
    assert.equal(asked.length, 3);
    assert.equal(lists.trouble, undefined);
  });

  it('end when they are stopped', async () => {
    lists.stop();
    await assert.rejects(listAll(), Unwanted);
    assert.deepEqual(asked, []);
  });
});
