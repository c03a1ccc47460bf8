import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { defineFlags, inGroup, parseDurationMs, UsageError } from '#src/runtime/flags.ts';
import { parseFlags, renderHelp } from '#src/runtime/parse-flags.ts';

const table = defineFlags({
  v: { type: 'int', default: 0, min: 0, short: 'v', help: 'Verbosity.' },
  'worker-threads': { type: 'int', default: 100, min: 1, help: 'Workers.' },
  'leader-election': { type: 'bool', default: true, help: 'Elect.' },
  timeout: { type: 'durationMs', default: '10s', min: '1ms', help: 'Deadline.' },
  'redis-url': { type: 'string', default: 'redis://default', env: 'REDIS_URL', help: 'Redis.' },
  'kube-api-qps': { type: 'float', default: 0, help: 'Rate.' },
  'logging-format': { type: 'string', default: 'text', values: ['text', 'json'], help: 'Form.' },
  labels: { type: 'labels', help: 'Labels.' },
  gateway: { type: 'strings', default: 'unix:///a', help: 'Gateways.' },
});

function parsed(argv: string[], env: Record<string, string> = {}) {
  const result = parseFlags(table, { argv, env });
  assert.ok(result.kind === 'run');
  return result.flags;
}

const message = (argv: string[]): string => {
  try {
    parseFlags(table, { argv, env: {} });
  } catch (error) {
    assert.ok(error instanceof UsageError);
    return error.message;
  }
  throw new Error('nothing was refused');
};

describe('parseFlags', () => {
  it('reads a value after = or from the next argument', () => {
    assert.equal(parsed(['--worker-threads=5']).workerThreads, 5);
    assert.equal(parsed(['--worker-threads', '5']).workerThreads, 5);
  });

  it('never reads the next argument as the value of a switch', () => {
    assert.equal(parsed(['--leader-election', '--worker-threads=2']).leaderElection, true);
    assert.equal(parsed(['--leader-election=false']).leaderElection, false);
  });

  it('says how to switch off when an argument follows a switch', () => {
    assert.match(
      message(['--leader-election', 'false']),
      /unexpected argument "false".*--name=false/,
    );
  });

  for (const argv of [['-v', '5'], ['-v5'], ['-v=5'], ['--v=5']]) {
    it(`reads ${argv.join(' ')}`, () => assert.equal(parsed(argv).v, 5));
  }

  it('collects a list from all occurrences and from commas, the last of equal items', () => {
    assert.deepEqual(parsed(['--gateway=a,b', '--gateway', 'c', '--gateway=b']).gateway, [
      'a',
      'c',
      'b',
    ]);
    assert.deepEqual(parsed([]).gateway, ['unix:///a']);
    assert.deepEqual(parsed(['--gateway=']).gateway, []);
    assert.deepEqual(parsed([], { SUTLER_GATEWAY: 'x, y' }).gateway, ['x', 'y']);
  });

  it('reads the environment where the flag is absent, its own variable first', () => {
    assert.equal(parsed([], { REDIS_URL: 'redis://env' }).redisUrl, 'redis://env');
    assert.equal(parsed([], { SUTLER_WORKER_THREADS: '7' }).workerThreads, 7);
    assert.equal(
      parsed(['--redis-url=redis://flag'], { REDIS_URL: 'redis://env' }).redisUrl,
      'redis://flag',
    );
    assert.equal(parsed([], { REDIS_URL: '' }).redisUrl, 'redis://default');
  });

  it('recognizes requests for help and for the version', () => {
    assert.equal(parseFlags(table, { argv: ['--help', '--nonsense'], env: {} }).kind, 'help');
    assert.equal(parseFlags(table, { argv: ['--version'], env: {} }).kind, 'version');
  });

  it('accepts as many words as maxWords allows', () => {
    const result = parseFlags(table, {
      argv: ['-v', '4', 'some-uid', '--leader-election'],
      env: {},
      maxWords: 1,
    });
    assert.ok(result.kind === 'run');
    assert.deepEqual(result.words, ['some-uid']);
    assert.throws(
      () => parseFlags(table, { argv: ['one', 'two'], env: {}, maxWords: 1 }),
      /unexpected argument "two"/,
    );
  });

  it('accepts the flags of other processes and lists them', () => {
    const known = defineFlags({ 'csi-address': { type: 'string', default: '', help: 'Socket.' } });
    const result = parseFlags(table, { argv: ['--csi-address', '/x', '-v', '4'], env: {}, known });
    assert.ok(result.kind === 'run');
    assert.deepEqual(result.unused, ['--csi-address']);
    assert.equal(result.flags.v, 4);
  });

  it('warns about a flag that upstream once had, and says what replaced it', () => {
    const result = parseFlags(table, { argv: ['--leader-election-type', 'x'], env: {}, known: {} });
    assert.ok(result.kind === 'run');
    assert.deepEqual(result.warnings, [
      '--leader-election-type is accepted and ignored: a Lease is used; remove the flag',
    ]);
  });

  for (const [title, argument, expected] of [
    ['an unknown flag', '--xyz', /unknown flag --xyz \(--help/],
    ['a single dash, without the value', '-worker-threads=5', /two dashes, --worker-threads$/],
    ['a number below the minimum', '--worker-threads=0', /--worker-threads: 0 is below .* of 1/],
    ['a word for a number', '--worker-threads=many', /--worker-threads: "many" is not a whole/],
    ['a duration without a unit', '--timeout=10', /--timeout: "10" is not a duration/],
    ['a duration below the minimum', '--timeout=0', /below the minimum of 1ms/],
    [
      'a word that is not among the values',
      '--logging-format=xml',
      /"xml" is not one of text, json/,
    ],
    ['a switch that is neither', '--leader-election=yes', /neither true nor false/],
    ['a missing value', '--timeout', /--timeout needs a value/],
  ] as const)
    it(`refuses ${title}`, () => assert.match(message([argument]), expected));
});

describe('parseDurationMs', () => {
  const cases: Record<string, number | undefined> = {
    '300ms': 300,
    '1m30s': 90_000,
    '-2s': -2000,
    '0': 0,
    '1µs': 0.001,
    '10': undefined,
    '1d': undefined,
    '1 s': undefined,
  };
  for (const [text, ms] of Object.entries(cases)) {
    it(`reads ${JSON.stringify(text)} as ${ms ?? 'no duration'}`, () =>
      assert.equal(parseDurationMs(text), ms));
  }
});

describe('renderHelp', () => {
  it('has flags with their defaults, and what is said of a command', () => {
    const table = defineFlags({
      ...inGroup('Redis', {
        'redis-url': { type: 'string', default: '', env: 'REDIS_URL', help: 'Redis.' },
      }),
      v: { type: 'int', default: 0, short: 'v', help: 'Verbosity.' },
      timeout: { type: 'durationMs', default: '10s', help: 'Deadline.' },
    });
    const command = { word: 'UID', exits: { 0: 'dropped', 1: 'refused' }, examples: ['u -v 4'] };
    assert.equal(
      renderHelp('forget', 'drops a record', table, command),
      `sutler forget: drops a record

Usage: sutler forget UID [flags]

Examples:
  sutler forget u -v 4

Exit status:
  0  dropped
  1  refused

      --timeout DURATION
          Deadline. (default 10s)
  -v, --v NUMBER
          Verbosity. (default 0)

Redis:
      --redis-url TEXT
          Redis. [env REDIS_URL]
`,
    );
  });
});
