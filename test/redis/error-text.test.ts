import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeRedisError } from '#src/redis/error-text.ts';

describe('describeRedisError', () => {
  it('repeats the message of a Redis that is full or read-only', () => {
    assert.match(
      describeRedisError(
        'h:1',
        new Error("OOM command not allowed when used memory > 'maxmemory'."),
      ),
      /OOM command not allowed/,
    );
    assert.match(
      describeRedisError('h:1', new Error("READONLY You can't write against a read only replica.")),
      /READONLY/,
    );
  });
});
