import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { defineFlags, inGroup } from '#src/runtime/flags.ts';
import { renderHelp } from '#src/runtime/parse-flags.ts';

describe('renderHelp', () => {
  it('names every flag with its default', () => {
    const table = defineFlags({
      v: { type: 'int', default: 0, short: 'v', help: 'Verbosity.' },
      timeout: { type: 'durationMs', default: '10s', help: 'Deadline.' },
      'redis-url': { type: 'string', default: '', env: 'REDIS_URL', help: 'Redis.' },
    });
    assert.equal(
      renderHelp('jobs', 'does jobs', table),
      [
        'sutler jobs: does jobs',
        '',
        'Usage: sutler jobs [flags]',
        '',
        '      --redis-url TEXT\n          Redis. [env REDIS_URL]',
        '      --timeout DURATION\n          Deadline. (default 10s)',
        '  -v, --v NUMBER\n          Verbosity. (default 0)',
        '',
      ].join('\n'),
    );
  });

  it('has the examples, exit statuses and groups of flags of a command', () => {
    const table = defineFlags({
      ...inGroup('Redis', { 'redis-url': { type: 'string', default: '', help: 'Redis.' } }),
      yes: { type: 'bool', default: false, help: 'Do it.' },
    });
    const command = { word: 'UID', exits: { 0: 'dropped', 1: 'refused' }, examples: ['u --yes'] };
    assert.equal(
      renderHelp('forget', 'drops a record', table, command),
      [
        'sutler forget: drops a record',
        '',
        'Usage: sutler forget UID [flags]',
        '',
        'Examples:',
        '  sutler forget u --yes',
        '',
        'Exit status:',
        '  0  dropped',
        '  1  refused',
        '',
        '      --yes \n          Do it. (default false)',
        '',
        'Redis:',
        '      --redis-url TEXT\n          Redis.',
        '',
      ].join('\n'),
    );
  });
});
