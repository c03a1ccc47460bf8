import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { callsOwnDriver, checkedNode, table } from '#src/all/main.ts';
import { capacityPlace } from '#src/capacity/flags.ts';
import { flagsOf } from '#src/dispatch.ts';
import { checkFlags as checkIngestFlags } from '#src/ingest/start-driver.ts';
import { checkFlags as checkJobsFlags } from '#src/jobs/start-workers.ts';
import { processes } from '#src/processes.ts';
import { defaultValue, parseValue, UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { idleFlags } from '#src/runtime/process-flags.ts';
import { parseFeatureGates, retiredGates } from '#src/volumes/flags.ts';
import {
  DRIVER_ARGUMENTS,
  MINOR_VERSIONS,
  upstreamFlags,
  upstreamGates,
} from '../harness/upstream-arguments.ts';

const PARITY = readFileSync(new URL('../../../docs/parity.md', import.meta.url), 'utf8');
/** Whether a row of docs/parity.md names the flag, gate or variable as code, and says this. */
function isRow(name: string, says = /./): boolean {
  return PARITY.split(/\n(?=- |#)/).some((row) => {
    const codes = [...row.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code.split('=')[0]);
    return codes.includes(name) && says.test(row.replaceAll(/\s+/g, ' '));
  });
}

/** Reads arguments as `sutler` does, which without a name runs `all`. */
function parse(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const known = flagsOf(processes);
  const parsed = parseFlags(table, { argv, env, known });
  assert.ok(parsed.kind === 'run', argv.join(' '));
  return parsed;
}

/** The values of a flag other than its default. */
function othersOf([value, ...others]: readonly [string, ...string[]]): readonly string[] {
  if (value !== 'true' && value !== 'false') return others;
  return [value === 'true' ? 'false' : 'true'];
}

/** Values at the ends of the range that upstream's parser accepts. */
function endsOf(name: string, [value]: readonly [string, ...string[]]): readonly string[] {
  if (/^\d+[smh]$/.test(value)) return ['0', '-1s', '1ns'];
  if (name.endsWith('-threads')) return ['0'];
  return name === 'volume-name-uuid-length' ? ['-2', '0', '33'] : [];
}

/** Whether a value is neither refused when it is read nor when the process starts. */
function isTaken(name: string, value: string): boolean {
  try {
    const context = { flags: parse([`--${name}=${value}`]).flags, env: {} };
    checkIngestFlags(context);
    checkJobsFlags(context);
    return true;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return false;
  }
}

describe('sutler all with the arguments of external-provisioner', () => {
  for (const version of MINOR_VERSIONS) {
    const flags = Object.entries(upstreamFlags(version));

    it(`accepts each flag of v${version} with its default, without a warning`, () => {
      const argv = flags.map(([name, [value]]) => `--${name}=${value}`);
      assert.deepEqual(parse(argv).warnings, []);
    });

    it(`serves each flag of v${version} or warns that another value has no effect`, () => {
      const silent = flags.filter(([name, values]) => {
        if (Object.hasOwn(table, name)) return false;
        const others = othersOf(values).map((value) => parse([`--${name}=${value}`]).warnings);
        return (
          others.length === 0 || others.some((lines) => !lines.join().startsWith(`--${name} `))
        );
      });
      assert.deepEqual(silent, []);
    });

    it(`has the default of v${version} for each flag, or docs/parity.md says so`, () => {
      const different = flags.filter(([name, [value]]) => {
        const spec = Object.entries({ ...idleFlags, ...table }).find(([own]) => own === name)?.[1];
        if (spec === undefined) return true;
        const ours = JSON.stringify(defaultValue(spec));
        return (
          ours !== JSON.stringify(parseValue(spec, [value])) && !isRow(`--${name}`, /default is/)
        );
      });
      assert.deepEqual(different, []);
    });

    it(`refuses a value at the end of the range of v${version} only where docs/parity.md says so`, () => {
      const refused = flags.flatMap(([name, values]) =>
        endsOf(name, values)
          .filter((value) => !isTaken(name, value) && !isRow(`--${name}`, /refuses them at start/))
          .map((value) => `--${name}=${value}`),
      );
      assert.deepEqual(refused, []);
    });

    it(`accepts each gate of v${version}, on and off`, () => {
      for (const name of Object.keys(upstreamGates(version)))
        for (const value of [true, false]) {
          const items = [`${name}=${value}`];
          const gates = parseFeatureGates(items);
          if (typeof gates === 'string') assert.fail(gates);
          if (Object.hasOwn(gates, name))
            assert.equal({ ...gates }[name as keyof typeof gates], value);
          else assert.ok(name.startsWith('All') || retiredGates(items).includes(name), name);
        }
    });

    it(`has the default of v${version} for each gate, or docs/parity.md says so`, () => {
      const ours = new Map(Object.entries(parseFeatureGates([])));
      const different = Object.entries(upstreamGates(version)).filter(
        ([name, isOn]) =>
          ours.get(name) === !isOn && !isRow(name, new RegExp(`v${version} it is off by default`)),
      );
      assert.deepEqual(different, []);
    });
  }

  for (const [kind, argv] of Object.entries(DRIVER_ARGUMENTS))
    it(`takes the arguments of a driver without a warning: ${kind}`, () => {
      const { flags, warnings } = parse(argv);
      const context = { flags, env: { NAMESPACE: 'driver', POD_NAME: 'driver-0' } };
      checkIngestFlags(context);
      checkJobsFlags(context);
      assert.deepEqual(warnings, []);
    });

  it('takes the same value in another form without a warning', () => {
    const same = ['capacity-poll-interval=60s', 'node-deployment-max-delay=1m'];
    const argv = [...same, 'kube-api-capacity-qps=1.0'].map((each) => `--${each}`);
    assert.deepEqual(parse(argv).warnings, []);
  });

  it('names each served flag that has no effect in docs/parity.md', () => {
    const idle = Object.keys(upstreamFlags('6.3')).filter((name) =>
      Object.entries(table).some(
        ([own, { help }]) => own === name && help.startsWith('Has no effect'),
      ),
    );
    assert.deepEqual(
      idle.filter((name) => !isRow(`--${name}`, /no effect/)),
      [],
    );
    assert.ok(idle.includes('cloning-protection-threads'));
  });

  it('calls the driver beside it, unless a flag names gateways', () => {
    for (const argv of Object.values(DRIVER_ARGUMENTS)) assert.ok(callsOwnDriver(parse(argv)));
    for (const flag of ['--gateway=unix:///g', '--gateway-service=a/b', '--driver-config=/f'])
      assert.equal(callsOwnDriver(parse([flag])), false);
    assert.equal(callsOwnDriver(parse(['--listen=unix:///l', '--gateway-service=a/b'])), false);
  });

  it('refuses to listen for workers elsewhere and to call the driver past its gateway', () =>
    assert.throws(() => callsOwnDriver(parse(['--listen=unix:///l'])), /give --gateway-service/));

  it('refuses a process for each node that shares a Redis', () => {
    const { flags } = parse(['--node-deployment', '--redis-url=redis://127.0.0.1']);
    assert.throws(() => checkedNode({ flags, env: { NODE_NAME: 'a' } }), UsageError);
  });

  it('refuses a gate of Kubernetes’ API server, which docs/parity.md says', () => {
    assert.equal(typeof parseFeatureGates(['WatchList=true']), 'string');
    assert.ok(isRow('WatchList', /For sutler it is an unknown gate/));
  });
});

describe('the environment of external-provisioner', () => {
  it('KUBECONFIG names the kubeconfig, but not where --kubeconfig is given, which docs/parity.md says', () => {
    assert.equal(parse([], { KUBECONFIG: '/a' }).flags.kubeconfig, '/a');
    assert.equal(parse(['--kubeconfig=/b'], { KUBECONFIG: '/a' }).flags.kubeconfig, '/b');
    assert.ok(isRow('KUBECONFIG'));
  });

  it('NAMESPACE and POD_NAME are the place and owner of capacity objects', () => {
    const { flags } = parse(['--enable-capacity']);
    const place = capacityPlace(flags, { NAMESPACE: 'a', POD_NAME: 'b' });
    assert.deepEqual(place, { namespace: 'a', podName: 'b' });
  });

  it('NODE_NAME is the node of --node-deployment, and must be set then (R-34)', () => {
    const { flags } = parse(['--node-deployment']);
    assert.equal(checkedNode({ flags, env: { NODE_NAME: 'a' } }), 'a');
    assert.throws(() => checkedNode({ flags, env: {} }), /NODE_NAME/);
  });
});
