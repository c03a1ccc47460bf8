import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { FlowControl } from '#src/kube/flow-control.ts';
import { KubeError } from '#src/kube/kube-error.ts';

const unlimited = { qps: 0, burst: 0, nowMs: () => 0 };
const ask = { title: 'get x', timeoutMs: 5000 };

describe('FlowControl', () => {
  it('admits up to the limit, then the others in the order of their arrival', async () => {
    const flow = new FlowControl({ ...unlimited, maxInFlight: 2 });
    const order: number[] = [];
    const all = [1, 2, 3, 4].map((n) => flow.acquire(ask).then(() => order.push(n)));
    await setImmediate();
    assert.deepEqual(order, [1, 2]);
    assert.equal(flow.inFlight, 2);
    flow.release('answered');
    await setImmediate();
    assert.deepEqual(order, [1, 2, 3]);
    flow.release('answered');
    await Promise.all(all);
    assert.deepEqual(order, [1, 2, 3, 4]);
  });

  it('lowers the limit on refusals, once a second, not below 2; successes raise it', async () => {
    let nowMs = 0;
    const flow = new FlowControl({ ...unlimited, nowMs: () => nowMs, maxInFlight: 48 });
    const refuse = async (): Promise<void> => {
      await flow.acquire(ask);
      flow.release('refused');
    };
    await refuse();
    await refuse();
    assert.equal(flow.limit, 33, 'two refusals of one moment count once');
    for (let second = 0; second < 20; second++) {
      nowMs += 1000;
      await refuse();
    }
    assert.equal(flow.limit, 2);
    await flow.acquire(ask);
    flow.release('lost');
    assert.equal(flow.limit, 2, 'a lost answer is no reason to send more');
    let successes = 0;
    for (; flow.limit < 48; successes++) {
      await flow.acquire(ask);
      flow.release('answered');
    }
    assert.ok(successes > 1000, `${successes} successes: recovery is additive, not at once`);
    await flow.acquire(ask);
    flow.release('answered');
    assert.equal(flow.limit, 48, 'never above what was asked for');
  });

  it('refuses a request that waits too long, with an error that says it was not sent', async () => {
    const flow = new FlowControl({ ...unlimited, maxInFlight: 1 });
    await flow.acquire(ask);
    await assert.rejects(
      flow.acquire({ title: 'get x', timeoutMs: 5 }),
      (error) =>
        error instanceof KubeError &&
        error.code === 0 &&
        error.reason === 'Timeout' &&
        !error.maybeSent &&
        error.message.startsWith('get x: '),
    );
    flow.release('answered');
    await flow.acquire(ask);
    assert.equal(flow.inFlight, 1, 'the place of who left is not lost');
  });

  it('removes an aborted request from the queue', async () => {
    const flow = new FlowControl({ ...unlimited, maxInFlight: 1 });
    await flow.acquire(ask);
    const abort = new AbortController();
    const waiting = flow.acquire({ ...ask, signal: abort.signal });
    abort.abort();
    await assert.rejects(
      waiting,
      (error) => error instanceof KubeError && error.reason === 'Aborted',
    );
    await assert.rejects(
      flow.acquire({ ...ask, signal: abort.signal }),
      (error) => error instanceof KubeError && !error.maybeSent,
    );
  });

  it('admits the burst, then the rate', async () => {
    const flow = new FlowControl({
      maxInFlight: 100,
      qps: 20,
      burst: 3,
      nowMs: () => performance.now(),
    });
    const startMs = performance.now();
    const passed: number[] = [];
    const all = Array.from({ length: 6 }, () =>
      flow.acquire(ask).then(() => passed.push(performance.now() - startMs)),
    );
    assert.equal(flow.inFlight, 3, 'three at once');
    await Promise.all(all);
    assert.ok((passed[5] ?? 0) >= 148, `the sixth after three periods of 50 ms: ${passed[5]}`);
  });
});
