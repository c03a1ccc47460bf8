import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { flagsOf } from '#src/dispatch.ts';
import { driverFlags, isConfig, readDriverConfig } from '#src/driver-config/read-config.ts';
import { flags as ingest } from '#src/ingest/flags.ts';
import { flags as jobs } from '#src/jobs/flags.ts';
import { processes } from '#src/processes.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

const known = flagsOf(processes);

function options(argv: readonly string[] = [], check: () => void = () => undefined) {
  const parsed = parseFlags(jobs, { argv, env: {}, known });
  assert.ok(parsed.kind === 'run');
  return { known, defaults: parsed.flags, check };
}

/** What the sections set, without the gateways that they leave out. */
async function valuesOf(text: string): Promise<Record<string, unknown>> {
  const config = await readDriverConfig(text, options());
  assert.ok(isConfig(config), JSON.stringify(config));
  const isGiven = ([, value]: readonly [string, unknown]): boolean =>
    value !== '' && !(Array.isArray(value) && value.length === 0);
  return Object.fromEntries(
    [...config].map(([name, { values }]) => [
      name,
      Object.fromEntries(Object.entries(values).filter(isGiven)),
    ]),
  );
}

async function faultsOf(text: string, o = options()): Promise<readonly string[]> {
  const config = await readDriverConfig(text, o);
  assert.ok(!isConfig(config), 'nothing was refused');
  return config.map(({ line, what }) => `${line}: ${what}`);
}

const A = '  a.example.com:\n    gateway: unix:///a\n';
const B = '  b.example.com:\n    gateway: unix:///b\n';

describe('readDriverConfig', () => {
  it('reads values by the rules of flags', async () => {
    const text = `
drivers:
  a.example.com:
    # A replica each.
    gateway: [dns:///127.0.0.1:1, 'dns:///127.0.0.1:2']
    timeout: 1m30s
    strict-topology: true
    worker-threads: 7
    leader-election-labels: {team: storage, "5": x}
    feature-gates:
      - Topology=false
      - AllAlpha=true
  b.example.com: {gateway: "unix:///b", volume-name-prefix: 010, timeout: "5s"}
`;
    assert.deepEqual(await valuesOf(text), {
      'a.example.com': {
        gateway: ['dns:///127.0.0.1:1', 'dns:///127.0.0.1:2'],
        timeoutMs: 90_000,
        strictTopology: true,
        workerThreads: 7,
        leaderElectionLabels: { team: 'storage', 5: 'x' },
        featureGates: ['Topology=false', 'AllAlpha=true'],
      },
      'b.example.com': { gateway: ['unix:///b'], volumeNamePrefix: '010', timeoutMs: 5_000 },
    });
  });

  it('reads JSON', async () => {
    const text = JSON.stringify({
      drivers: { x: { gateway: 'unix:///x', 'strict-topology': true } },
    });
    assert.deepEqual(await valuesOf(text), { x: { gateway: ['unix:///x'], strictTopology: true } });
  });

  it('reads a file without drivers if it says so', async () => {
    assert.deepEqual(await valuesOf('drivers: {}\n'), {});
  });

  it('has each flag of a driver as a key, whatever process it is of', () => {
    const keys = Object.keys(driverFlags(known));
    for (const table of [ingest, jobs])
      for (const key of Object.keys(driverFlags(table))) assert.ok(keys.includes(key), key);
    assert.ok(keys.includes('audit-interval') && keys.includes('worker-threads'));
    assert.ok(!keys.includes('redis-url') && !keys.includes('kubeconfig'));
  });

  const refused: Readonly<Record<string, readonly [string, ...RegExp[]]>> = {
    'what is not YAML': [`drivers:\n${A}   b: c\n`, /^[34]: not YAML: /],
    'an empty file': ['', /^1: there are no drivers; write "drivers:"/],
    'a file that ends after its first line': ['drivers:\n', /^1: there are no drivers/],
    'more than 1 MiB': [' '.repeat(1024 * 1024 + 1), /^1: the file is longer than 1 MiB$/],
    'two documents': [`drivers: {}\n---\ndrivers: {}\n`, /^1: several YAML documents/],
    'an unknown key at the top': [`driver:\n${A}`, /^1: unknown key "driver"/, /no drivers/],
    'an unknown key, with the nearest one': [
      `drivers:\n${A}    tiemout: 1s\n`,
      /^4: driver a\.example\.com: unknown key "tiemout"; docs\/flags\.md lists all keys$/,
    ],
    'a flag of the process': [
      `drivers:\n${A}    redis-url: redis://x\n`,
      /^4: driver a\.example\.com: redis-url is not a driver's own; .*--redis-url$/,
    ],
    'a duration without a unit': [
      `drivers:\n${A}    timeout: 10\n`,
      /^4: driver a\.example\.com: timeout: "10" is not a duration; .*10s/,
    ],
    'a word that is no boolean': [
      `drivers:\n${A}    strict-topology: yes\n`,
      /^4: .*strict-topology: "yes" is neither true nor false/,
    ],
    'a number below its minimum': [
      `drivers:\n${A}    worker-threads: 0\n`,
      /^4: .*worker-threads: 0 is below the minimum of 1/,
    ],
    'a value that is missing': [
      `drivers:\n${A}    timeout:\n    worker-threads: 5\n`,
      /^4: .*timeout: the value is missing/,
    ],
    'a list for a flag that is none': [
      `drivers:\n${A}    timeout: [1s, 2s]\n`,
      /^4: .*timeout: it is a list; write one value/,
    ],
    'a mapping in a list': [
      `drivers:\n${A}    feature-gates: [{Topology: true}]\n`,
      /^4: .*feature-gates: line 4 is a mapping; write a text/,
    ],
    'a key that is there twice': [
      `drivers:\n${A}    gateway: unix:///c\n`,
      /^4: .*gateway is also on line 3; remove one/,
    ],
    'a driver that is there twice': [
      `drivers:\n${A}${B}${A.replace('unix:///a', 'unix:///c')}`,
      /^6: .*the name a\.example\.com is also that of driver a\.example\.com \(line 2\)/,
    ],
    'a gateway of two drivers': [
      `drivers:\n${A}${B.replace('unix:///b', 'unix:///a')}`,
      /^5: driver b\.example\.com: gateway unix:\/\/\/a is also that of driver a\S+ \(line 3\)/,
    ],
    'a Service of two drivers': [
      'drivers:\n  x:\n    gateway-service: a/b\n  y:\n    gateway-service: a/b\n',
      /^5: driver y: gateway-service a\/b is also that of driver x \(line 3\)/,
    ],
    'names whose Leases have one name': [
      `drivers:\n${A}${B.replace('b.example.com', 'a-example.com')}`,
      /^4: driver a-example\.com: the Lease a-example-com is also that of .*leader-election-namespace/,
    ],
    'a driver without a gateway': [
      'drivers:\n  x:\n    timeout: 1s\n',
      /^2: driver x: gateway is missing; write "gateway-service: NAMESPACE\/NAME"/,
    ],
    'a driver without keys': ['drivers:\n  x:\n', /^2: driver x: it has no keys/],
    'a name that no driver can have': [
      'drivers:\n  "a/b":\n    gateway: unix:///a\n',
      /^2: "a\/b" can't be a driver's name/,
    ],
    'an alias': [
      `drivers:\n  x: &x\n    gateway: unix:///x\n  y: *x\n`,
      /^4: an alias \(\*name\); write the value out/,
    ],
    'a tag': ['drivers:\n  x:\n    gateway: !!str unix:///x\n', /^3: a tag/],
  };
  for (const [what, [text, ...patterns]] of Object.entries(refused)) {
    it(`refuses ${what}`, async () => {
      const faults = await faultsOf(text);
      assert.equal(faults.length, patterns.length, faults.join('\n'));
      for (const [i, pattern] of patterns.entries()) assert.match(faults[i] ?? '', pattern);
    });
  }

  it('reports all faults, in the order of their lines', async () => {
    const text = `drivers:\n${A}    x: 1\n${B}    timeout: 5\n    y: 2\n`;
    assert.deepEqual(
      (await faultsOf(text)).map((fault) => fault.split(':')[0]),
      ['4', '7', '8'],
    );
  });

  it('two drivers may have one Lease name in two namespaces', async () => {
    const second = '  a-example.com:\n    gateway: unix:///b\n';
    const key = '    leader-election-namespace: other\n';
    assert.equal(Object.keys(await valuesOf(`drivers:\n${A}${second}${key}`)).length, 2);
  });

  it('takes no gateway from a flag of the process', async () => {
    const defaults = options(['--gateway-service=a/b', '--gateway=unix:///a']);
    assert.match(
      (await faultsOf('drivers:\n  x:\n    timeout: 1s\n', defaults))[0] ?? '',
      /missing/,
    );
    const text = 'drivers:\n  x:\n    gateway: unix:///x\n';
    const config = await readDriverConfig(text, options(['--gateway-service=a/b']));
    assert.ok(isConfig(config));
    assert.equal(config.get('x')?.values['gatewayService'], '');
  });

  it('names the line of the key that can’t be used together with others', async () => {
    const check = (): void => {
      throw new UsageError('--timeout: it must be longer than --settle-time');
    };
    const text = `drivers:\n${A}    timeout: 1s\n`;
    assert.deepEqual(await faultsOf(text, options([], check)), [
      '4: driver a.example.com: timeout: it must be longer than settle-time',
    ]);
  });

  it('checks a driver with the flags of the process as defaults', async () => {
    const seen: unknown[] = [];
    const o = {
      ...options(['--timeout=7s', '--worker-threads=3']),
      check: (values: Readonly<Record<string, unknown>>) =>
        void seen.push(values['timeoutMs'], values['workerThreads']),
    };
    await readDriverConfig(`drivers:\n${A}    worker-threads: 9\n`, o);
    assert.deepEqual(seen, [7_000, 9]);
  });

  it('never throws, whatever the text is', async () => {
    const good = `drivers:\n${A}    timeout: 1s\n    feature-gates: [a, b]\n${B}`;
    const cut = fc
      .tuple(fc.nat(good.length), fc.nat(6), fc.string({ unit: 'binary', maxLength: 6 }))
      .map(([at, count, text]) => good.slice(0, at) + text + good.slice(at + count));
    const o = options();
    const check = async (text: string): Promise<void> => {
      const result = await readDriverConfig(text, o);
      if (isConfig(result)) return;
      assert.ok(result.length > 0);
      for (const { line } of result) assert.ok(line >= 1 && line <= text.split('\n').length + 1);
    };
    const any = fc.string({ unit: 'binary', maxLength: 60 });
    await fc.assert(fc.asyncProperty(fc.oneof(cut, any), check), { numRuns: 300 });
  });
});
