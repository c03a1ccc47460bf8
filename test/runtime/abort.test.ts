import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { describe, it } from 'node:test';
import { unlessAborted } from '#src/runtime/abort.ts';

const never = new Promise<string>(() => {});

describe('unlessAborted', () => {
  it('resolves or rejects as the promise does, and leaves no listener on the signal', async () => {
    const { signal } = new AbortController();
    assert.equal(await unlessAborted(Promise.resolve('x'), signal), 'x');
    await assert.rejects(unlessAborted(Promise.reject(new Error('no')), signal), /^Error: no$/);
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  it('resolves with undefined when the signal aborts', async () => {
    const stop = new AbortController();
    const waiting = unlessAborted(never, stop.signal);
    stop.abort();
    assert.equal(await waiting, undefined);
  });

  it('does not wait if the signal has aborted, and ignores a later rejection', async () => {
    const late = new Promise<string>((_resolve, reject) =>
      setImmediate(() => reject(new Error('late'))),
    );
    assert.equal(await unlessAborted(late, AbortSignal.abort()), undefined);
    await assert.rejects(late);
  });
});
