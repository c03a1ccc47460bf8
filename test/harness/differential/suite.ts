import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { realControlPlane, type RealControlPlane } from '../real-control-plane.ts';
import { installCrdsIn, referenceGrantCrd, snapshotCrds } from '../snapshot-crds.ts';
import {
  describeDifference,
  type Difference,
  differencesOf,
  isKnown,
  type KnownDifference,
} from './differences.ts';
import { startProvisioner } from './provisioners.ts';
import type { ScenarioRecord } from './record.ts';
import { playAll, type Setting } from './run.ts';
import type { Scenario } from './scenario.ts';

const PARITY = fileURLToPath(new URL('../../../../docs/parity.md', import.meta.url));

/** Scenarios that run with the same flags and the same driver. */
export interface DifferentialSuite extends Setting {
  readonly name: string;
  readonly scenarios: readonly Scenario[];
  readonly known: readonly KnownDifference[];
}

/** Runs external-provisioner and sutler, one after the other, through the same scenarios on one
 * real control plane, and compares what they did. Without a path in EXTERNAL_PROVISIONER there are
 * no tests, and one line says so. DIFFERENTIAL_ONLY, a pattern, selects scenarios by name;
 * DIFFERENTIAL_LOG=1 prints the output of the provisioners. */
export function describeDifferential(
  suites: readonly DifferentialSuite[],
  env: NodeJS.ProcessEnv,
): void {
  const program = env['EXTERNAL_PROVISIONER'];
  if (program === undefined || program === '') {
    const names = suites.map(({ name }) => name).join(', ');
    process.stdout.write(
      `sutler against external-provisioner, ${names}: not compared; ` +
        'set EXTERNAL_PROVISIONER to the path of csi-provisioner\n',
    );
    return;
  }
  const only = new RegExp(env['DIFFERENTIAL_ONLY'] ?? '');
  const open = realControlPlane(env, {
    binder: true,
    serverGates: suites.flatMap(({ serverGates }) => serverGates ?? []),
  });
  describe('sutler against external-provisioner', () => {
    let plane: RealControlPlane | undefined;
    before(async () => {
      plane = await open();
      await installCrdsIn(plane.kubeconfig, [...snapshotCrds, referenceGrantCrd(['v1beta1'])]);
    });
    after(() => plane?.close());
    for (const suite of suites) {
      const scenarios = suite.scenarios.filter(({ name }) => only.test(name));
      if (scenarios.length > 0)
        describeSuite(
          { ...suite, scenarios },
          {
            program,
            plane: () => plane,
            isWhole: scenarios.length === suite.scenarios.length,
            showsLog: env['DIFFERENTIAL_LOG'] === '1',
          },
        );
    }
  });
}

interface SuiteContext {
  /** Path of external-provisioner. */
  readonly program: string;
  readonly plane: () => RealControlPlane | undefined;
  /** No scenario is left out, so that every known difference has to occur. */
  readonly isWhole: boolean;
  readonly showsLog: boolean;
}

function describeSuite(
  suite: DifferentialSuite,
  { program, plane, isWhole, showsLog }: SuiteContext,
): void {
  const { scenarios, known } = suite;
  const isOnPurpose = (difference: Difference): boolean =>
    known.some((entry) => isKnown(difference, entry));
  describe(suite.name, () => {
    let upstream: ReadonlyMap<string, ScenarioRecord> = new Map();
    let sutler: ReadonlyMap<string, ScenarioRecord> = new Map();
    let differences: readonly Difference[] = [];
    before(async () => {
      const ready = plane();
      assert.ok(ready !== undefined, 'there is no control plane');
      const options = { plane: ready, setting: suite, scenarios, showsLog };
      upstream = await playAll({ ...options, start: (how) => startProvisioner(how, program) });
      sutler = await playAll({
        ...options,
        start: startProvisioner,
        expected: upstream,
        isKnown: isOnPurpose,
      });
      differences = scenarios.flatMap(({ name }) => compareOne(name, upstream, sutler));
    });

    for (const { name, title } of scenarios) {
      it(`${title} [${name}]`, () => {
        assert.equal(
          upstream.get(name)?.trouble,
          '',
          'upstream itself does not finish this scenario',
        );
        const unknown = differences.filter(
          (found) => found.scenario === name && !isOnPurpose(found),
        );
        assert.equal(
          unknown.length,
          0,
          `differs from upstream:\n${unknown.map(describeDifference).join('\n')}`,
        );
      });
    }

    it('repeats no call if the driver gives its default answers', () => {
      const repeated = scenarios
        .filter(({ answer }) => answer === undefined)
        .flatMap(({ name }) =>
          (sutler.get(name)?.repeated ?? []).map((call) => `${name}: ${call}`),
        );
      assert.deepEqual(repeated, []);
    });

    it('differs only if docs/parity.md has an entry for it', async () => {
      const page = (await readFile(PARITY, 'utf8')).replace(/\n {2,}/g, ' ');
      const entries = [...new Set(known.map(({ entry }) => entry))];
      assert.deepEqual(
        entries.filter((entry) => !/^(?:\.\*\*|\*\*:)/.test(page.split(`\n- **${entry}`)[1] ?? '')),
        [],
      );
    });

    if (isWhole) {
      it('shows every difference that is listed as intended', () => {
        const missing = known.filter(
          (entry) => !differences.some((found) => isKnown(found, entry)),
        );
        assert.deepEqual(
          missing.map(
            ({ scenario, where, entry }) => `${String(scenario)} ${String(where)} (${entry})`,
          ),
          [],
        );
      });
    }
  });
}

function compareOne(
  name: string,
  upstream: ReadonlyMap<string, ScenarioRecord>,
  sutler: ReadonlyMap<string, ScenarioRecord>,
): readonly Difference[] {
  const [a, b] = [upstream.get(name), sutler.get(name)];
  assert.ok(a !== undefined && b !== undefined, `${name} did not run`);
  return differencesOf(name, a, b);
}
