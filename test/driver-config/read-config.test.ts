import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import { flagsOf } from '#src/dispatch.ts';
import {
  driverFlags,
  parseDriverConfig,
  readDriverConfig,
} from '#src/driver-config/read-config.ts';
import { flags as ingest } from '#src/ingest/flags.ts';
import { flags as jobs } from '#src/jobs/flags.ts';
import { processes } from '#src/processes.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

const known = flagsOf(processes);

function flagsOfProcess(argv: readonly string[] = []) {
  const parsed = parseFlags(jobs, { argv, env: {}, known });
  assert.ok(parsed.kind === 'run');
  return parsed.flags;
}

function parse(text: string, flags: ReturnType<typeof flagsOfProcess>) {
  return parseDriverConfig<typeof jobs>(text, { known, flags, env: {} }, () => undefined);
}

/** What the sections set in the place of the process' flags. */
async function valuesOf(text: string): Promise<Record<string, unknown>> {
  const flags = flagsOfProcess();
  const config = await parse(text, flags);
  const isOwn = ([key, value]: readonly [string, unknown]): boolean =>
    value !== '' &&
    !(Array.isArray(value) && value.length === 0) &&
    !isDeepStrictEqual(value, { ...flags }[key]);
  return Object.fromEntries(
    [...config].map(([name, values]) => [
      name,
      Object.fromEntries(Object.entries(values).filter(isOwn)),
    ]),
  );
}

const A = '  a.example.com:\n    gateway: unix:///a\n';
const B = '  b.example.com:\n    gateway: unix:///b\n';

describe('--driver-config', () => {
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

  const ofA = (line: string): string => `drivers:\n${A}    ${line}\n`;
  const refused: Readonly<Record<string, readonly [string, RegExp]>> = {
    'what is not YAML': [ofA(' b: c'), / at line \d, column \d/],
    'an empty file': ['', /^there are no drivers; write "drivers:"/],
    'two documents': [`drivers: {}\n---\ndrivers: {}\n`, /multiple documents/],
    'an unknown key at the top': [`driver:\n${A}`, /^unknown key "driver"; write "drivers:"/],
    'an unknown key': [
      ofA('tiemout: 1s'),
      /^driver a\.example\.com: unknown key "tiemout"; docs\/flags\.md lists all keys$/,
    ],
    'a flag of the process': [
      ofA('redis-url: redis://x'),
      /^driver a\.example\.com: redis-url is not a key of a driver; give it to the process/,
    ],
    'a duration without a unit': [
      ofA('timeout: 10'),
      /^driver a\.example\.com: timeout: "10" is not a duration; .*10s/,
    ],
    'a value that is missing': [ofA('timeout:'), /timeout: the value is missing/],
    'a list for a flag that is none': [ofA('timeout: [1s, 2s]'), /timeout: write one value/],
    'a mapping in a list': [
      ofA('feature-gates: [{Topology: true}]'),
      /feature-gates: write one value or a list/,
    ],
    'a key that is there twice': [ofA('gateway: unix:///c'), /Map keys must be unique at line 4/],
    'a gateway of two drivers': [
      `drivers:\n${A}${B.replace('unix:///b', 'unix:///a')}`,
      /^driver b\.example\.com: gateway unix:\/\/\/a is also used by driver a\.example\.com/,
    ],
    'names whose Leases have one name': [
      `drivers:\n${A}${B.replace('b.example.com', 'a-example.com')}`,
      /^driver a-example\.com: the Lease a-example-com is also used by .*leader-election-namespace/,
    ],
    'a driver without a gateway': [
      'drivers:\n  x:\n    timeout: 1s\n',
      /^driver x: gateway: the address of a gateway is missing; give it, or gateway-service=/,
    ],
    'a driver without keys': ['drivers:\n  x:\n', /^driver x: it has no keys/],
    'a name that no driver can have': [
      'drivers:\n  "a/b":\n    gateway: unix:///a\n',
      /^driver a\/b: write the name that GetPluginInfo returns/,
    ],
  };
  for (const [what, [text, message]] of Object.entries(refused))
    it(`refuses ${what}`, () => assert.rejects(valuesOf(text), { message }));

  it('may give two drivers one Lease name in two namespaces', async () => {
    const second = '  a-example.com:\n    gateway: unix:///b\n';
    const key = '    leader-election-namespace: other\n';
    assert.equal(Object.keys(await valuesOf(`drivers:\n${A}${second}${key}`)).length, 2);
  });

  it('takes no gateway from a flag of the process', async () => {
    const flags = flagsOfProcess(['--gateway-service=a/b', '--gateway=unix:///a']);
    await assert.rejects(parse('drivers:\n  x:\n    timeout: 1s\n', flags), /missing/);
    const config = await parse(`drivers:\n${A}`, flags);
    assert.equal(config.get('a.example.com')?.gatewayService, '');
  });

  describe('in a file', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sutler-read-config-'));
    const path = join(folder, 'drivers.yaml');
    after(() => rmSync(folder, { recursive: true }));
    type Check = Parameters<typeof readDriverConfig<typeof jobs>>[1];
    const read = (text: string, check: Check) => {
      writeFileSync(path, text);
      const argv = [`--driver-config=${path}`, '--timeout=7s', '--worker-threads=3'];
      return readDriverConfig({ flags: flagsOfProcess(argv), env: {}, known }, check);
    };

    it('names the file, the driver and the key that can’t be used together with others', () =>
      assert.rejects(
        read(`drivers:\n${A}    timeout: 1s\n`, () => {
          throw new UsageError('--timeout: it must be longer than --settle-time');
        }),
        new UsageError(
          `--driver-config ${path}: driver a.example.com: ` +
            'timeout: it must be longer than settle-time',
        ),
      ));

    it('checks a driver with the flags of the process as defaults', async () => {
      const seen: unknown[] = [];
      await read(`drivers:\n${A}    worker-threads: 9\n`, ({ flags }) => {
        seen.push(flags.timeoutMs, flags.workerThreads);
      });
      assert.deepEqual(seen, [7_000, 9]);
    });
  });

  it('fails with a message, whatever the text is', async () => {
    const good = `drivers:\n${A}    timeout: 1s\n    feature-gates: [a, b]\n${B}`;
    const cut = fc
      .tuple(fc.nat(good.length), fc.nat(6), fc.string({ unit: 'binary', maxLength: 6 }))
      .map(([at, count, text]) => good.slice(0, at) + text + good.slice(at + count));
    const flags = flagsOfProcess();
    const check = async (text: string): Promise<void> => {
      const error = await parse(text, flags).then(() => undefined, String);
      if (error !== undefined) assert.match(error, /^Error: ./);
    };
    const any = fc.string({ unit: 'binary', maxLength: 60 });
    await fc.assert(fc.asyncProperty(fc.oneof(cut, any), check), { numRuns: 300 });
  });
});
