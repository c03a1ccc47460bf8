import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Closers } from '#src/runtime/closers.ts';

describe('Closers', () => {
  it('closes the last opened part first', async () => {
    const order: string[] = [];
    const closers = new Closers();
    closers.add('a', () => order.push('a'));
    closers.add('b', () => Promise.resolve(order.push('b')));
    await closers.close();
    assert.deepEqual(order, ['b', 'a']);
  });

  it('closes the others after one fails, and returns its error', async () => {
    const closed: string[] = [];
    const closers = new Closers();
    closers.add('a', () => closed.push('a'));
    closers.add('b', () => Promise.reject(new Error('stuck')));
    const [error] = await closers.close();
    assert.deepEqual(closed, ['a']);
    assert.equal(error?.message, 'closing b failed');
    assert.ok(error?.cause instanceof Error && error.cause.message === 'stuck');
  });

  it('closes every part once', async () => {
    let times = 0;
    const closers = new Closers();
    closers.add('a', () => (times += 1));
    await closers.close();
    await closers.close();
    assert.equal(times, 1);
  });
});
