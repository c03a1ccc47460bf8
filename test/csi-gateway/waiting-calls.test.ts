import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type WaitingCall, WaitingCalls } from '#src/csi-gateway/waiting-calls.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
const LONG_MS = 60_000;

/** Calls whose slots are numbers, given out from 1 on. */
class Room {
  readonly counts: number[] = [];
  readonly calls: WaitingCalls<number>;
  #slots = 0;

  constructor(maxBytes = 1e9) {
    this.calls = new WaitingCalls({ maxBytes, onChange: (count) => this.counts.push(count) });
  }

  get waiting(): number {
    return this.counts.at(-1) ?? 0;
  }

  wait(connection: object, change: Partial<WaitingCall> = {}, ms = LONG_MS) {
    const { signal } = new AbortController();
    return this.calls.wait({ path: CREATE, bytes: 100, signal, connection, ...change }, ms);
  }

  give(path = CREATE): boolean {
    return this.calls.giveNext(path, () => (this.#slots += 1));
  }

  /** Gives a slot to each call that waits. */
  giveAll(): void {
    while (this.give());
  }
}

describe('WaitingCalls', () => {
  it('gives slots to the calls of one connection in the order of their arrival', async () => {
    const room = new Room();
    const connection = {};
    const slots = [1, 2, 3].map(() => room.wait(connection));
    room.giveAll();
    assert.deepEqual(await Promise.all(slots), [1, 2, 3]);
  });

  it('lets connections take turns, whatever number of calls each has', async () => {
    const room = new Room();
    const [busy, other] = [{}, {}];
    const many = [1, 2, 3, 4].map(() => room.wait(busy));
    const few = [1, 2].map(() => room.wait(other));
    room.giveAll();
    assert.deepEqual(await Promise.all(many), [1, 3, 5, 6]);
    assert.deepEqual(await Promise.all(few), [2, 4]);
  });

  it('gives a slot only to a call of its method', async () => {
    const room = new Room();
    const slot = room.wait({}, { path: '/csi.v1.Controller/DeleteVolume' });
    assert.equal(room.give(), false);
    assert.equal(room.give('/csi.v1.Controller/DeleteVolume'), true);
    assert.equal(await slot, 1);
  });

  it('ends a wait without a slot when its time is over', async () => {
    const room = new Room();
    assert.equal(await room.wait({}, {}, 5), undefined);
    assert.equal(room.give(), false, 'it has no place any more');
  });

  it('ends the wait of a call that is cancelled', async () => {
    const room = new Room();
    const cancelled = new AbortController();
    const slot = room.wait({}, { signal: cancelled.signal });
    cancelled.abort();
    assert.equal(await slot, undefined);
    assert.equal(await room.wait({}, { signal: cancelled.signal }), undefined);
    assert.equal(room.waiting, 0);
  });

  it('ends every wait on demand', async () => {
    const room = new Room();
    const slots = [room.wait({}), room.wait({})];
    room.calls.endAll();
    assert.deepEqual(await Promise.all(slots), [undefined, undefined]);
    assert.deepEqual(room.counts, [1, 2, 1, 0]);
  });

  it('takes the place of the newest call of the connection that holds most memory', async () => {
    const room = new Room(200_000);
    const [greedy, modest] = [{}, {}];
    const modestSlot = room.wait(modest);
    const slots = Array.from({ length: 20 }, () => room.wait(greedy));
    const late = room.wait(modest);
    room.giveAll();
    const got = (await Promise.all(slots)).map((slot) => slot !== undefined);
    assert.notEqual(await modestSlot, undefined);
    assert.notEqual(await late, undefined, 'a full room keeps nobody else out');
    assert.ok(got.filter(Boolean).length < 7, 'memory is bounded');
    assert.deepEqual(
      got,
      got.toSorted((a, b) => Number(b) - Number(a)),
      'the oldest keep their places',
    );
  });

  it('has no place for a request that is larger than all its memory', async () => {
    const room = new Room(200_000);
    const small = room.wait({});
    assert.equal(await room.wait({}, { bytes: 300_000 }), undefined);
    room.giveAll();
    assert.equal(await small, 1);
  });
});
