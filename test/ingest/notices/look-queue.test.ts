import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { ChangeNotice } from '#src/webhooks/notices.ts';
import { type Look, LookQueue } from '#src/ingest/notices/look-queue.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { ObjectRef, Resource } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { until } from '../../harness/until.ts';

describe('look queue: looks', () => {
  let reads: string[];
  let seen: Look[];
  let answer: (name: string) => Promise<unknown>;
  let underWay: number;
  let mostAtOnce: number;
  let metrics: Registry;
  /** Added to the time, which stands still where a test says so. */
  let nowMs: number;
  let standsStill: boolean;
  let looks: LookQueue;
  let tests = 0;
  const claim = (name: string): ChangeNotice => ({
    resource: 'persistentvolumeclaims',
    namespace: 'n',
    name,
    isEarly: false,
  });
  const valueOf = async (name: string): Promise<number | undefined> => {
    const metric = await metrics.getSingleMetric(name)?.get();
    return metric?.values[0]?.value;
  };
  beforeEach(() => {
    const test = (tests += 1);
    reads = [];
    nowMs = 0;
    standsStill = false;
    seen = [];
    underWay = 0;
    mostAtOnce = 0;
    answer = (name) => Promise.resolve({ metadata: { name } });
    metrics = new Registry();
    looks = new LookQueue({
      client: {
        // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- its type
        async get<T>({ plural }: Resource, { namespace, name }: ObjectRef) {
          reads.push([plural, namespace, name].filter((part) => part !== undefined).join('/'));
          underWay += 1;
          mostAtOnce = Math.max(mostAtOnce, underWay);
          try {
            await systemClock.sleep(1);
            return (await answer(name)) as T | undefined;
          } finally {
            // A read of the test before may end in this one.
            if (test === tests) underWay -= 1;
          }
        },
      },
      onLook: (look) => void seen.push(look),
      clock: { ...systemClock, nowMs: () => (standsStill ? 0 : systemClock.nowMs()) + nowMs },
      log: silentLog,
      metrics,
    });
  });
  afterEach(() => looks.stop());

  it('read the object that a notice names, and pass on that it does not exist', async () => {
    answer = (name) => Promise.resolve(name === 'gone' ? undefined : { metadata: { name } });
    looks.add(claim('a'));
    looks.add({ ...claim('gone'), resource: 'persistentvolumes', namespace: '' });
    await until(() => seen.length === 2, 'both are read');
    assert.deepEqual(reads, ['persistentvolumeclaims/n/a', 'persistentvolumes/gone']);
    assert.deepEqual(
      seen.map(({ object }) => object),
      [{ metadata: { name: 'a' } }, undefined],
    );
  });

  it('read 16 objects at a time', async () => {
    for (let i = 0; i < 200; i += 1) looks.add(claim(`c${i}`));
    await until(() => seen.length === 200, 'all are read');
    assert.equal(mostAtOnce, 16);
  });

  it('read an object 100 ms after an early notice, and again', async () => {
    const startedMs = Date.now();
    looks.add({ ...claim('a'), isEarly: true });
    assert.equal(await valueOf('sutler_notice_looks_planned'), 1);
    await until(() => seen.length === 1, 'it is read');
    assert.ok(Date.now() - startedMs >= 100);
    await until(() => seen.length === 2, 'it is read again');
    assert.ok(Date.now() - startedMs >= 1_000);
  });

  it('read an object once for notices that come together, and again for one during its read', async () => {
    let finish = (): void => undefined;
    answer = () => new Promise((resolve) => (finish = () => resolve({ metadata: {} })));
    for (let i = 0; i < 3; i += 1) looks.add(claim('a'));
    await until(() => underWay === 1, 'it is being read');
    looks.add(claim('a'));
    await systemClock.sleep(5);
    assert.equal(mostAtOnce, 1);
    finish();
    await until(() => reads.length === 2 && underWay === 1, 'it is read again');
    finish();
    await until(() => seen.length === 2, 'both have ended');
    assert.equal(reads.length, 2);
  });

  it('are not put off by early notices one after the other', async () => {
    for (let i = 0; i < 20; i += 1) {
      looks.add({ ...claim('a'), isEarly: true });
      await systemClock.sleep(20);
    }
    assert.ok(seen.length > 0);
  });

  it('repeat a look that failed after 1 s, 5 s and 30 s, and give up then', async () => {
    answer = () =>
      Promise.reject(
        new KubeError({ code: 500, reason: 'x', serverMessage: 'no', request: 'get' }),
      );
    standsStill = true;
    looks.add(claim('a'));
    for (const [i, afterMs] of [1_000, 5_000, 30_000].entries()) {
      await until(() => reads.length === i + 1 && underWay === 0, 'a look has failed');
      nowMs += afterMs - 500;
      await systemClock.sleep(120);
      assert.equal(reads.length, i + 1, `not before ${afterMs} ms`);
      nowMs += 500;
    }
    await until(async () => (await valueOf('sutler_notices_dropped_total')) === 1, 'it gives up');
    assert.equal(reads.length, 4);
  });

  it('look once at objects that they may not read, name the rule, and recover', async () => {
    answer = () =>
      Promise.reject(
        new KubeError({ code: 403, reason: 'Forbidden', serverMessage: 'no', request: 'get' }),
      );
    for (const name of ['a', 'b', 'c']) looks.add({ ...claim(name), isEarly: true });
    const dropped = async () => (await valueOf('sutler_notices_dropped_total')) === 3;
    await until(dropped, 'each look is refused');
    assert.equal(reads.length, 3);
    assert.match(looks.trouble ?? '', /get on persistentvolumeclaims.*k8s\/webhooks\/rbac\.yaml/);
    assert.equal(await valueOf('sutler_notice_looks_planned'), 1, 'one is read again');
    answer = (name) => Promise.resolve({ metadata: { name } });
    nowMs += 30_000;
    await until(() => seen.length === 1, 'it is read again');
    assert.equal(looks.trouble, undefined);
    assert.equal(reads.length, 4);
  });

  it('say that the credentials are not taken, where the answer is 401', async () => {
    answer = () =>
      Promise.reject(
        new KubeError({ code: 401, reason: 'Unauthorized', serverMessage: 'no', request: 'get' }),
      );
    looks.add(claim('a'));
    await until(() => looks.trouble !== undefined, 'it is said');
    assert.match(looks.trouble ?? '', /401.*credentials/);
    looks.clear();
    assert.equal(looks.trouble, undefined, 'nothing is read while this process does not lead');
  });

  it('count early notices that are dropped', async () => {
    for (let i = 0; i < 10_001; i += 1) looks.add({ ...claim(`c${i}`), isEarly: true });
    assert.equal(await valueOf('sutler_notices_dropped_total'), 1);
  });
});
