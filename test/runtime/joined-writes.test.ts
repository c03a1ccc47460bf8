import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { JoinedWrites } from '#src/runtime/joined-writes.ts';
import { until } from '../harness/until.ts';

interface Output {
  readonly written: readonly string[];
  readonly output: JoinedWrites;
  /** Lets time pass; timers fire, as while the event loop turns. */
  tick(ms: number): void;
  /** Lets time pass while no timer fires, as while the event loop is blocked. */
  block(ms: number): void;
}

function open(t: TestContext): Output {
  let nowMs = 1_000;
  t.mock.method(performance, 'now', () => nowMs);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const written: string[] = [];
  const block = (ms: number): void => void (nowMs += ms);
  return {
    written,
    output: new JoinedWrites((text) => void written.push(text)),
    block,
    tick: (ms) => {
      block(ms);
      t.mock.timers.tick(ms);
    },
  };
}

describe('joined writes', () => {
  it('write a text that comes alone at once', (t) => {
    const { output, written, tick } = open(t);
    output.write('a\n');
    tick(25);
    output.write('b\n');
    assert.deepEqual(written, ['a\n', 'b\n']);
  });

  it('write together, in order, what comes within 20 ms after a write', (t) => {
    const { output, written, tick } = open(t);
    for (const text of ['a\n', 'b\n', 'c\n']) output.write(text);
    assert.deepEqual(written, ['a\n']);
    tick(20);
    output.write('d\n');
    tick(20);
    assert.deepEqual(written, ['a\n', 'b\nc\n', 'd\n']);
  });

  it('hold nothing for longer than that while the event loop is blocked', (t) => {
    const { output, written, block } = open(t);
    for (const text of ['a', 'b']) output.write(text);
    block(20);
    output.write('c');
    assert.deepEqual(written, ['a', 'bc']);
  });

  it('hold at most 64 Ki characters', (t) => {
    const { output, written } = open(t);
    output.write('a');
    output.write('b'.repeat(64 * 1024));
    assert.equal(written.length, 1);
    output.write('c');
    assert.equal(written.length, 2);
  });

  it('write at once what is held when they are flushed', (t) => {
    const { output, written } = open(t);
    for (const text of ['a', 'b']) output.write(text);
    output.flush();
    output.flush();
    assert.deepEqual(written, ['a', 'b']);
  });

  it('need no flush while the process lives', async () => {
    const written: string[] = [];
    const output = new JoinedWrites((text) => void written.push(text));
    for (const text of ['a', 'b']) output.write(text);
    await until(() => written.length === 2, 'the second text is written');
  });
});
