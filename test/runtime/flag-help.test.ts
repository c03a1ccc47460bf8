import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { renderHelp } from '#src/runtime/flag-help.ts';
import { defineFlags } from '#src/runtime/flags.ts';

describe('renderHelp', () => {
  it('names every flag with its default', () => {
    const table = defineFlags({
      v: { type: 'int', default: 0, short: 'v', help: 'Verbosity.' },
      timeout: { type: 'durationMs', default: '10s', help: 'Deadline.' },
      'redis-url': { type: 'string', default: '', env: 'REDIS_URL', help: 'Redis.' },
    });
    assert.equal(
      renderHelp('jobs', 'does jobs', table, 'FILE'),
      [
        'sutler jobs: does jobs',
        '',
        'Usage: sutler jobs FILE [flags]',
        '',
        '      --redis-url TEXT\n          Redis. [env REDIS_URL]',
        '      --timeout DURATION\n          Deadline. (default 10s)',
        '  -v, --v NUMBER\n          Verbosity. (default 0)',
        '',
      ].join('\n'),
    );
  });
});
