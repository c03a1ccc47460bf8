import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FailureBudget } from '#src/webhooks/senders/failure-budget.ts';

describe('the budget of failures', () => {
  it('is spent by twenty at once, for that network only', () => {
    const budget = new FailureBudget();
    for (let n = 0; n < 20; n += 1) {
      assert.equal(budget.isSpent('10.0.0.1', 0), false);
      budget.countFailure('10.0.0.1', 0);
    }
    assert.equal(budget.isSpent('10.0.0.1', 0), true);
    assert.equal(budget.isSpent('::ffff:10.0.0.1', 0), true);
    assert.equal(budget.isSpent('10.0.0.2', 0), false);
  });

  it('comes back by five a second', () => {
    const budget = new FailureBudget();
    for (let n = 0; n < 20; n += 1) budget.countFailure('10.0.0.1', 0);
    assert.equal(budget.isSpent('10.0.0.1', 250), false);
  });
});
