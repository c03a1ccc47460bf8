import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { missingRights, neededRights } from '#src/all/rights.ts';
import { flags as table } from '#src/ingest/flags.ts';
import { flags as jobsTable } from '#src/jobs/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

const EVERYTHING = { verbs: ['*'], apiGroups: ['*'], resources: ['*'] };

const needed = (...argv: readonly string[]) => {
  const parsed = parseFlags({ ...jobsTable, ...table }, { argv, env: {} });
  assert.ok(parsed.kind === 'run');
  return neededRights(parsed.flags);
};
const missing = (rules: readonly object[], argv: readonly string[] = [], incomplete = false) => {
  const answer = { status: { incomplete, resourceRules: rules } };
  const create = () => Promise.resolve(answer as never);
  return missingRights({ create }, 'storage', needed(...argv));
};

describe('the rights that sutler all lacks', () => {
  it('are none where a role grants everything', async () =>
    assert.deepEqual(await missing([EVERYTHING]), []));

  it('are named by the feature that is off and the rule that grants it', async () => {
    const rules = [{ ...EVERYTHING, apiGroups: ['', 'storage.k8s.io', 'coordination.k8s.io'] }];
    assert.deepEqual((await missing(rules)).slice(0, 1), [
      {
        feature: 'restores from snapshots',
        rule: "{ apiGroups: ['snapshot.storage.k8s.io'], resources: [volumesnapshots], verbs: [get] }",
      },
    ]);
  });

  it('are only those that the flags need', async () => {
    const features = (list: readonly { feature: string }[]) => list.map(({ feature }) => feature);
    const without = features(await missing([], ['--leader-election=false']));
    const withAll = features(await missing([], ['--leader-election', '--enable-capacity']));
    assert.ok(!without.includes('leader election') && !without.includes('storage capacity'));
    assert.ok(withAll.includes('leader election') && withAll.includes('storage capacity'));
  });

  it('are not granted by a rule for some names only', async () => {
    const named = { ...EVERYTHING, resourceNames: ['one'] };
    assert.notEqual((await missing([named])).length, 0);
  });

  it('are not guessed where the API server does not know all rules', async () =>
    assert.deepEqual(await missing([], [], true), []));
});
