import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Listeners } from '#src/runtime/listeners.ts';

describe('Listeners', () => {
  it('pass a value to all subscribers, in the order of subscribing', () => {
    const listeners = new Listeners<number>();
    const heard: string[] = [];
    listeners.subscribe((value) => heard.push(`a${value}`));
    listeners.subscribe((value) => heard.push(`b${value}`));
    listeners.notify(1);
    listeners.notify(2);
    assert.deepEqual(heard, ['a1', 'b1', 'a2', 'b2']);
  });
});
