import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { catchRefusal, RefusedError } from '#src/rules/rule.ts';

describe('catchRefusal', () => {
  it('turns a refusal into the caller’s value', () => {
    const refuse = (): string => {
      throw new RefusedError('no');
    };
    assert.equal(
      catchRefusal(refuse, ({ message }) => `${message}!`),
      'no!',
    );
  });

  it('lets the error of a defect pass', () => {
    const fail = (): string => {
      throw new TypeError('broken');
    };
    assert.throws(() => catchRefusal(fail, () => 'fine'), { name: 'TypeError', message: 'broken' });
  });
});
