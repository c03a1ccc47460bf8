import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type RequestBuffer, RequestMemory } from '#src/runtime/request-memory.ts';

const KIB = 1024;

/** Opens buffers that note their names in `lost` when they lose their memory. */
function openMemory(maxBytes: number): {
  readonly lost: string[];
  open(owner: string, name: string): RequestBuffer;
} {
  const memory = new RequestMemory(maxBytes);
  const lost: string[] = [];
  return { lost, open: (owner, name) => memory.open(owner, () => lost.push(name)) };
}

describe('RequestMemory', () => {
  it('returns the bytes of all chunks in their order, whatever their sizes', () => {
    const { open } = openMemory(1_000 * KIB);
    const chunks = [1, 5, 3_000, 20_000, 2, 4_095, 4_096, 7, 30_000].map((size, index) =>
      Buffer.alloc(size, index + 1),
    );
    const buffer = open('a', 'request');
    for (const chunk of chunks) buffer.add(chunk);
    assert.deepEqual(buffer.take(), Buffer.concat(chunks));
  });

  for (const bytes of [5, 4 * KIB, 20 * KIB])
    it(`keeps no reference to the memory in which a chunk of ${bytes} bytes arrived`, () => {
      const slab = Buffer.alloc(64 * KIB, 1);
      const buffer = openMemory(1_000 * KIB).open('a', 'request');
      buffer.add(slab.subarray(0, bytes));
      slab.fill(9);
      assert.deepEqual(buffer.take(), Buffer.alloc(bytes, 1));
    });

  it('holds little more for a large request than its bytes, whatever the size of its chunks', () => {
    for (const chunkBytes of [1_000, 9_000, 17_000]) {
      const buffer = openMemory(10_000 * KIB).open('a', 'request');
      for (let i = 0; i < 100; i += 1) buffer.add(Buffer.alloc(chunkBytes));
      assert.ok(buffer.heldBytes < 1.3 * 100 * chunkBytes + 17_000, `${buffer.heldBytes}`);
    }
  });

  it('keeps nothing of a chunk with which its own request loses its memory', () => {
    const { lost, open } = openMemory(100 * KIB);
    const buffer = open('jobs', 'mine');
    buffer.add(Buffer.alloc(50 * KIB));
    buffer.add(Buffer.alloc(60 * KIB));
    assert.deepEqual(lost, ['mine']);
    assert.equal(buffer.heldBytes, 0);
  });

  it('holds no more for ten thousand bytes one by one than for a block', () => {
    const buffer = openMemory(1_000 * KIB).open('a', 'request');
    for (let i = 0; i < 10_000; i += 1) buffer.add(Buffer.alloc(1));
    assert.ok(buffer.heldBytes <= 16 * KIB + 1, `${buffer.heldBytes}`);
  });

  it('takes memory from the owner that holds most of it, and not from who asks', () => {
    const { lost, open } = openMemory(100 * KIB);
    for (const name of ['s1', 's2', 's3']) open('stranger', name).add(Buffer.alloc(32 * KIB));
    const mine = open('jobs', 'mine');
    mine.add(Buffer.alloc(10 * KIB));
    assert.deepEqual(lost, ['s3']);
    assert.equal(mine.take().length, 10 * KIB);
  });

  it('takes it from the newest request of that owner', () => {
    const { lost, open } = openMemory(100 * KIB);
    const oldest = open('jobs', 'oldest');
    oldest.add(Buffer.alloc(60 * KIB));
    open('jobs', 'newest').add(Buffer.alloc(50 * KIB));
    assert.deepEqual(lost, ['newest']);
    assert.equal(oldest.heldBytes, 60 * KIB);
  });

  it('has its memory back when requests are taken or cleared', () => {
    const { lost, open } = openMemory(100 * KIB);
    for (let i = 0; i < 20; i += 1) {
      const taken = open('jobs', 'taken');
      taken.add(Buffer.alloc(50 * KIB));
      taken.take();
      const cleared = open('jobs', 'cleared');
      cleared.add(Buffer.alloc(50 * KIB));
      cleared.clear();
    }
    assert.deepEqual(lost, []);
  });
});
