import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { flagsOf as flagsOfAll } from '#src/dispatch.ts';
import { processes } from '../../sandbox/processes.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { idleFlags, retiredFlags } from '#src/runtime/process-flags.ts';

/* Each flag of external-provisioner v6 (cmd/csi-provisioner/csi-provisioner.go, csi-lib-utils
 * standardflags, component-base logs): its default there, and other values that it accepts there.
 * A switch accepts only the opposite of its default besides. */
const UPSTREAM: Readonly<Record<string, readonly [string, ...string[]]>> = {
  master: ['', 'https://127.0.0.1:6443'],
  'volume-name-prefix': ['pvc', 'vol'],
  'volume-name-uuid-length': ['-1', '1', '32'],
  'retry-interval-start': ['1s', '300ms'],
  'retry-interval-max': ['5m', '1h30m'],
  'worker-threads': ['100', '1'],
  'cloning-protection-threads': ['1', '0', '5'],
  'snapshot-orphan-sweep-interval': ['5m', '0', '-1s', '720h'],
  'capacity-threads': ['1', '0', '10'],
  timeout: ['10s', '2m'],
  'strict-topology': ['false'],
  'immediate-topology': ['true'],
  'extra-create-metadata': ['false'],
  'enable-pprof': ['false'],
  'default-fstype': ['', 'ext4'],
  'kube-api-capacity-qps': ['1', '0.5', '-1'],
  'kube-api-capacity-burst': ['5', '0'],
  'enable-capacity': ['false'],
  'capacity-for-immediate-binding': ['false'],
  'capacity-poll-interval': ['1m', '30s'],
  'capacity-ownerref-level': ['1', '-1', '0', '2'],
  'node-deployment': ['false'],
  'node-deployment-immediate-binding': ['true'],
  'node-deployment-base-delay': ['20s', '0'],
  'node-deployment-max-delay': ['60s', '2m'],
  'controller-publish-readonly': ['false'],
  'prevent-volume-mode-conversion': ['true'],
  'feature-gates': ['', 'Topology=true,AllAlpha=false', 'CrossNamespaceVolumeDataSource=T'],
  kubeconfig: ['', '/config'],
  'csi-address': ['/run/csi/socket', 'unix:///csi/csi.sock'],
  'leader-election': ['false'],
  'leader-election-namespace': ['', 'ns'],
  'leader-election-lease-duration': ['15s', '137s'],
  'leader-election-renew-deadline': ['10s', '107s'],
  'leader-election-retry-period': ['5s', '26s'],
  'leader-election-labels': ['', 'a:b,c:d'],
  'kube-api-qps': ['5', '0', '-1', '20.5'],
  'kube-api-burst': ['10', '40'],
  'http-endpoint': ['', ':8080'],
  'metrics-address': ['', ':8080'],
  'metrics-path': ['/metrics', '/m'],
  automaxprocs: ['false'],
  'logging-format': ['text', 'json'],
  'log-flush-frequency': ['5s', '1s'],
  v: ['0', '5'],
  vmodule: ['', 'a=1,b=2'],
  'log-text-split-stream': ['false'],
  'log-text-info-buffer-size': ['0', '1Ki'],
  'log-json-split-stream': ['false'],
  'log-json-info-buffer-size': ['0', '1Ki'],
};
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
  Object.entries(UPSTREAM).flatMap(([flag, given]) =>
    values(given).flatMap((value) => waysToGive(flag, value)),
  );

const warningsOf = (name: string, argv: readonly string[]): readonly string[] => {
  const parsed = parseFlags(processes[name]?.flags ?? {}, {
    argv,
    env: {},
    known: allFlags,
    idle: idleFlags,
    retired: retiredFlags,
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

  it('causes no warning with upstream’s defaults', () => {
    for (const argv of flagsOf(([value]) => [value]))
      assert.deepEqual(warningsOf('jobs', argv), []);
    for (const same of [
      '--capacity-poll-interval=60s',
      '--node-deployment-max-delay=1m',
      '--kube-api-capacity-qps=1.0',
    ])
      assert.deepEqual(warningsOf('jobs', [same]), []);
  });

  it('warns about each flag without effect and says why (R-37, Q-51, Q-60)', () => {
    for (const flag of Object.keys(idleFlags)) {
      for (const argv of others(UPSTREAM[flag] ?? ['']).flatMap((value) => waysToGive(flag, value)))
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
    for (const [flag, { takesValue }] of Object.entries(retiredFlags))
      assert.match(
        warningsOf('jobs', [takesValue ? `--${flag}=x` : `--${flag}`]).join(),
        /^--[a-z-]+ is accepted and ignored: ./,
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

  it('does not contain the property names of every JavaScript object', () => {
    for (const flag of ['--constructor=1', '--toString'])
      assert.throws(() => warningsOf('jobs', [flag]), /unknown flag/);
  });

  it('is covered: each flag is read by some process or listed as without effect', () => {
    const unknown = Object.keys(UPSTREAM).filter(
      (flag) => Object.hasOwn(allFlags, flag) === Object.hasOwn(idleFlags, flag),
    );
    assert.deepEqual(unknown, [], 'neither, or both');
    assert.deepEqual(
      Object.keys(idleFlags).filter((flag) => !Object.hasOwn(UPSTREAM, flag)),
      [],
    );
  });
});
