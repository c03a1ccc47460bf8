import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { flags, resyncMs } from '#src/ingest/flags.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

describe('the interval of the resync', () => {
  for (const [argv, expectedMs] of [
    ['--event-source=webhook', 300_000],
    ['--event-source=both', 900_000],
    ['', 900_000],
    ['--event-source=webhook --resync-interval=1h', 3_600_000],
    ['--resync-interval=0', undefined],
  ] as const)
    it(`with "${argv}" is ${expectedMs === undefined ? 'refused' : `${expectedMs} ms`}`, () => {
      const read = (): number => {
        const parsed = parseFlags(flags, { argv: argv.split(' ').filter(Boolean), env: {} });
        assert.ok(parsed.kind === 'run');
        return resyncMs(parsed.flags);
      };
      if (expectedMs === undefined) assert.throws(read, UsageError);
      else assert.equal(read(), expectedMs);
    });
});
