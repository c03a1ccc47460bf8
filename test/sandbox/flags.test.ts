import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { withoutFlags } from '../../sandbox/flags.ts';

describe('withoutFlags', () => {
  it('removes a flag in both notations, and nothing else', () => {
    assert.deepEqual(
      withoutFlags(['--gateway=a', '-v', '4', '--gateway', 'b', '--once', 'c', '--gateway-x=c'], {
        gateway: { type: 'strings', default: '', help: '' },
        once: { type: 'bool', default: false, help: '' },
      }),
      ['-v', '4', 'c', '--gateway-x=c'],
    );
  });
});
