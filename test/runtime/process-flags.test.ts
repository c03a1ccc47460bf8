import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { flagsOf as flagsOfAll } from '#src/dispatch.ts';
import { processes } from '../../sandbox/processes.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { idleFlags, retiredFlags } from '#src/runtime/process-flags.ts';
import { UPSTREAM_FLAGS } from '../harness/upstream-arguments.ts';

const SPELLINGS: Readonly<Record<string, readonly string[]>> = {
  true: ['true', 'True', 'TRUE', 't', 'T', '1'],
  false: ['false', 'False', 'FALSE', 'f', 'F', '0'],
};
const isSwitch = ([value]: readonly [string, ...string[]]): boolean => value in SPELLINGS;
const others = ([value, ...rest]: readonly [string, ...string[]]): readonly string[] =>
  isSwitch([value]) ? [value === 'true' ? 'false' : 'true'] : rest;
/** All arguments that give a flag the value. */
const waysToGive = (flag: string, value: string): readonly (readonly string[])[] => {
  const texts = SPELLINGS[value];
  if (texts === undefined) return [[`--${flag}=${value}`], [`--${flag}`, value]];
  return [
    ...texts.map((text) => [`--${flag}=${text}`]),
    ...(value === 'true' ? [[`--${flag}`]] : []),
  ];
};
const flagsOf = (
  values: (given: readonly [string, ...string[]]) => readonly string[],
): readonly (readonly string[])[] =>
  Object.entries(UPSTREAM_FLAGS).flatMap(([flag, given]) =>
    values(given).flatMap((value) => waysToGive(flag, value)),
  );

const warningsOf = (name: string, argv: readonly string[]): readonly string[] => {
  const parsed = parseFlags(processes[name]?.flags ?? {}, {
    argv,
    env: {},
    known: allFlags,
  });
  assert.ok(parsed.kind === 'run', argv.join(' '));
  return parsed.warnings;
};

const allFlags = flagsOfAll(processes);

describe('the command line of external-provisioner', () => {
  for (const name of Object.keys(processes))
    it(`is accepted as a whole by ${name}, with other values and all of Go’s spellings`, () => {
      const argv = [...flagsOf(([value]) => [value]), ...flagsOf(others)].flat();
      warningsOf(name, [...argv, '-v', '5', '-v=5', '-v5', '--version=F']);
    });

  it('warns about each flag without effect and says why (R-37, Q-51, Q-60)', () => {
    for (const flag of Object.keys(idleFlags)) {
      for (const argv of others(UPSTREAM_FLAGS[flag] ?? ['']).flatMap((value) =>
        waysToGive(flag, value),
      ))
        assert.match(
          warningsOf('jobs', argv).join(),
          new RegExp(`^--${flag} is accepted and ignored: .`),
          argv.join(' '),
        );
    }
  });

  it('is refused for an unreadable value, whether or not the flag has an effect (Q-60)', () => {
    for (const flag of [
      '--automaxprocs=2',
      '--strict-topology=yes',
      '--capacity-threads=many',
      '--capacity-poll-interval=10',
      '--version=maybe',
    ])
      assert.throws(() => warningsOf('jobs', [flag]), UsageError, flag);
  });

  it('warns about each flag that upstream has dropped, and says what replaced it', () => {
    for (const [flag, { type }] of Object.entries(retiredFlags))
      for (const text of type === 'bool' ? ['', '=false'] : ['=x', '='])
        assert.match(
          warningsOf('jobs', [`--${flag}${text}`]).join(),
          /^--[a-z_-]+ is accepted and ignored: ./,
        );
  });

  it('warns about the flags of klog in both spellings, and takes their values', () => {
    const argv = [
      '--logtostderr',
      '--log_dir',
      '/logs',
      '--stderrthreshold=INFO',
      '--skip-headers',
    ];
    assert.deepEqual(
      warningsOf('jobs', argv).map((line) => line.replace(/ .*/, '')),
      ['--logtostderr', '--log_dir', '--stderrthreshold', '--skip-headers'],
    );
  });
});
