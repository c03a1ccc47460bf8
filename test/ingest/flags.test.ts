import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { flags, resyncMs as chooseMs } from '#src/ingest/flags.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

describe('the interval of the resync', () => {
  const resyncMs = (...argv: readonly string[]): number => {
    const parsed = parseFlags(flags, { argv, env: {} });
    assert.ok(parsed.kind === 'run');
    return chooseMs(parsed.flags);
  };

  it('is 5 minutes without a watch, and 15 with one', () => {
    assert.equal(resyncMs('--event-source=webhook'), 300_000);
    assert.equal(resyncMs('--event-source=both'), 900_000);
    assert.equal(resyncMs(), 900_000);
  });

  it('is what --resync-interval says', () => {
    assert.equal(resyncMs('--event-source=webhook', '--resync-interval=1h'), 3_600_000);
  });

  it('can’t be 0', () => {
    assert.throws(() => resyncMs('--resync-interval=0'), UsageError);
  });
});
