import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { redisReservedCapacity, type ReservedCapacity } from '#src/node-local/reserved-capacity.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const TTL_MS = 60_000;

describe('reserved room', () => {
  let server: TestRedis;
  let room: ReservedCapacity;
  const place = { prefix: 'csi', driver: 'd.example' };
  /** Reads as a run does before it asks the driver. */
  const made = async (node = 'a'): Promise<number> =>
    (await room.look([node])).byNode.get(node)?.madeBytes ?? Number.NaN;
  const reserve = (
    uid: string,
    bytes: number,
    found: { readonly capacity: number; readonly madeBefore: number; readonly node?: string },
  ): Promise<string> => room.reserve({ uid, bytes, node: 'a', ...found });

  before(async () => {
    server = await startTestRedis();
  });
  after(() => server.close());
  beforeEach(async () => {
    await server.redis.flushall();
    room = redisReservedCapacity(server.redis, place, TTL_MS);
  });

  it('is given as long as the capacity suffices for all reservations of the node', async () => {
    const found = { capacity: 100, madeBefore: 0 };
    assert.equal(await reserve('u1', 60, found), 'reserved');
    assert.equal(await reserve('u2', 60, found), 'full');
    assert.equal(await reserve('u2', 40, found), 'reserved');
    assert.equal(await reserve('u3', 1, found), 'full');
    assert.equal(await reserve('u3', 100, { ...found, node: 'b' }), 'reserved');
  });

  it('of a claim is moved by another reservation, and given back by release', async () => {
    const found = { capacity: 100, madeBefore: 0 };
    await reserve('u1', 100, found);
    assert.equal(await reserve('u1', 100, { ...found, node: 'b' }), 'reserved');
    const { byNode } = await room.look(['a', 'b']);
    assert.deepEqual(byNode.get('a'), { reservedBytes: 0, madeBytes: 100 });
    assert.deepEqual(byNode.get('b'), { reservedBytes: 100, madeBytes: 0 });
    await room.release('u1');
    await room.release('u1');
    assert.deepEqual((await room.look(['b'])).byNode.get('b'), {
      reservedBytes: 0,
      madeBytes: 100,
    });
  });

  it('counts a volume that is made after the driver was asked, which its answer lacks', async () => {
    await reserve('u1', 60, { capacity: 100, madeBefore: await made() });
    // Another run looks and asks; the driver has not begun u1, so it answers 100. Then u1 is made.
    const found = { capacity: 100, madeBefore: await made() };
    await room.release('u1');
    assert.equal(await reserve('u2', 60, found), 'full');
    assert.equal(await reserve('u2', 40, found), 'reserved');
  });

  it('does not count a volume that was made before the driver was asked', async () => {
    await reserve('u1', 60, { capacity: 100, madeBefore: await made() });
    await room.release('u1');
    assert.equal(await reserve('u2', 40, { capacity: 40, madeBefore: await made() }), 'reserved');
  });

  it('is never more than there is, in any order of a creation and a question', async () => {
    // The steps of a creation of 60 bytes, with the free bytes of the driver after each, and the
    // steps of a run that looks, asks and reserves: all interleavings.
    for (const order of interleavings(['allocate', 'release'], ['look', 'ask', 'reserve'])) {
      await server.redis.flushall();
      let free = 100;
      await reserve('u1', 60, { capacity: free, madeBefore: await made() });
      let found = { capacity: 0, madeBefore: 0 };
      let outcome = '';
      for (const step of order) {
        if (step === 'allocate') free -= 60;
        else if (step === 'release') await room.release('u1');
        else if (step === 'look') found = { ...found, madeBefore: await made() };
        else if (step === 'ask') found = { ...found, capacity: free };
        else outcome = await reserve('u2', 60, found);
      }
      assert.equal(outcome, 'full', order.join(', '));
    }
  });

  it('ends by itself, counted as made', async () => {
    room = redisReservedCapacity(server.redis, place, 20);
    const madeBefore = await made();
    await reserve('u1', 60, { capacity: 100, madeBefore });
    await delay(40);
    assert.equal(await made(), 60);
    assert.equal(await reserve('u2', 60, { capacity: 100, madeBefore }), 'full');
    assert.equal(await reserve('u2', 60, { capacity: 100, madeBefore: 60 }), 'reserved');
  });

  it('asks for a new answer of the driver when Redis has lost what was made', async () => {
    await reserve('u1', 60, { capacity: 100, madeBefore: 0 });
    await room.release('u1');
    const madeBefore = await made();
    await server.redis.flushall();
    assert.equal(await reserve('u2', 1, { capacity: 100, madeBefore }), 'stale');
  });

  it('survives capacities of 0 and 2^63-1', async () => {
    const largest = Number(2n ** 63n - 1n);
    assert.equal(await reserve('u1', 1, { capacity: 0, madeBefore: 0 }), 'full');
    assert.equal(await reserve('u1', largest, { capacity: largest, madeBefore: 0 }), 'reserved');
    assert.equal(await reserve('u2', largest, { capacity: largest, madeBefore: 0 }), 'full');
    await room.release('u1');
    const { byNode } = await room.look(['a']);
    assert.deepEqual(byNode.get('a'), { reservedBytes: 0, madeBytes: largest });
  });

  it('has another version when a volume was deleted', async () => {
    const { version } = await room.look(['a']);
    assert.equal(await room.version(), version);
    await room.grown();
    assert.notEqual(await room.version(), version);
    assert.equal((await room.look(['a'])).version, await room.version());
  });

  it('is forgotten a day after its last change', async () => {
    await reserve('u1', 1, { capacity: 1, madeBefore: 0 });
    for (const key of await server.redis.keys('*')) assert.ok((await server.redis.ttl(key)) > 0);
  });
});

/** All orders of two sequences of steps that keep the order of each. */
function interleavings(a: readonly string[], b: readonly string[]): readonly string[][] {
  const [firstA, ...restA] = a;
  const [firstB, ...restB] = b;
  if (firstA === undefined || firstB === undefined) return [[...a, ...b]];
  return [
    ...interleavings(restA, b).map((rest) => [firstA, ...rest]),
    ...interleavings(a, restB).map((rest) => [firstB, ...rest]),
  ];
}
