import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { claims } from '#src/kube/resources.ts';
import { childrenOf } from '../../bench/proc.ts';
import type { Connection } from '../conformance/connection.ts';
import { churn } from '../harness/change-over/scenario.ts';
import { type DropInBed, onDropInBed } from '../harness/drop-in-bed.ts';
import type { SutlerProcess } from '../harness/program.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';
import { pvsOf } from '../harness/why-bed.ts';
import { ACCOUNT, CLUSTER_RULES, grantUpstreamRules, RBAC } from '../harness/upstream-rights.ts';

/** As upstream's users start it, with a Lease that is soon free. */
const ARGS = [
  '--leader-election',
  '--leader-election-lease-duration=4s',
  '--leader-election-renew-deadline=3s',
  '--leader-election-retry-period=1s',
  '--timeout=2s',
  '--settle-time=2s',
  '--retry-interval-start=200ms',
];

const PLAN = { claims: 600, perSecond: 20, bursts: 1, deleteWithinMs: 3_000 };

const open = realControlPlane(process.env, { binder: true, hasDefaultLimit: true });

describe('sutler in the place of external-provisioner, with exactly its rights', () => {
  let plane: RealControlPlane;
  let api: Connection;
  before(async () => {
    plane = await open();
    ({ api } = plane);
  });
  after(() => plane.close());

  /** Runs steps on a bed whose provisioner has upstream's rights. */
  const onBed = (driverDelayMs: number, run: (bed: DropInBed) => Promise<void>) => async () => {
    const namespace = await api.namespace();
    const ownKubeconfig = await grantUpstreamRules(plane, namespace);
    await onDropInBed(plane, { ownKubeconfig, namespace, driverDelayMs }, run);
  };

  it(
    'binds 20 claims and deletes their volumes, and is refused nothing',
    onBed(0, async (bed) => {
      const sutler = await bed.start(ARGS);
      const names = Array.from({ length: 20 }, (_, i) => `claim-${i}`);
      const startMs = Date.now();
      await Promise.all(names.map((name) => bed.createClaim(name)));
      for (const name of names) await until(() => bed.isBound(name), `${name} is Bound`);
      process.stdout.write(`20 claims Bound after ${Date.now() - startMs} ms\n`);
      for (const name of names) await bed.kube.delete(claims, { namespace: bed.namespace, name });
      await until(() => bed.handles().length === 0, 'all volumes are deleted');
      assert.doesNotMatch(sutler.output(), /forbidden/i);
      const page = await (await fetch(`${sutler.url}/metrics`)).text();
      assert.match(page, /csi_sidecar_operations_seconds_bucket\{.*CreateVolume/);
      assert.equal((await fetch(`${sutler.url}/healthz/leader-election`)).status, 200);
      process.stdout.write(sutler.output());
    }),
  );

  it(
    'names a right that it lacks, with its rule, and goes on once a role grants it',
    onBed(0, async (bed) => {
      const role = `${RBAC}/clusterroles/${ACCOUNT}-${bed.namespace}`;
      const setRules = (rules: object) => api.patch('merge', role, { rules });
      const withoutCreation = CLUSTER_RULES.map((each) =>
        each.resources.includes('persistentvolumes')
          ? { ...each, verbs: each.verbs.filter((verb) => verb !== 'create') }
          : each,
      );
      await setRules(withoutCreation);
      const sutler = await bed.start(ARGS);
      await bed.createClaim('refused');
      const RULE = "{ apiGroups: [''], resources: [persistentvolumes], verbs: [create] }";
      await until(() => sutler.output().includes(RULE), 'the log names the rule');
      const isTold = async () =>
        (
          (await api.read(`/api/v1/namespaces/${bed.namespace}/events`)) as {
            items: { message: string }[];
          }
        ).items.some(({ message }) => /cannot create resource "persistentvolumes"/.test(message));
      await until(isTold, 'an event on the claim names verb and resource');
      await setRules(CLUSTER_RULES);
      await until(() => bed.isBound('refused'), 'the claim is Bound');
    }),
  );

  const upstream = process.env['EXTERNAL_PROVISIONER'] ?? '';
  it(
    'goes back to external-provisioner after it was killed, without a command',
    { skip: upstream === '' && 'needs EXTERNAL_PROVISIONER' },
    onBed(500, async (bed) => {
      const sutler = await bed.start(ARGS);
      const names = Array.from({ length: 20 }, (_, i) => `back-${i}`);
      await Promise.all(names.map((name) => bed.createClaim(name)));
      await until(() => (bed.driver.counts.get('CreateVolume') ?? 0) > 5, 'creations have begun');
      await sutler.kill();
      const args = ARGS.filter((arg) => !arg.startsWith('--settle-time'));
      await bed.start(args, {}, upstream);
      for (const name of names) await until(() => bed.isBound(name), `${name} is Bound`);
      assert.deepEqual(bed.ledger.madeAgain(), []);
      await deleteAll(bed, names);
    }),
  );

  /** Churns claims while the provisioner is disturbed: nothing is lost, leaked or made twice. */
  async function survives(bed: DropInBed, disturb: () => Promise<void>): Promise<void> {
    const { lost, left, madeTwice, leaked } = await churn(bed, PLAN, disturb);
    // A volume that is made again for a claim that is gone is deleted again.
    assert.deepEqual(
      { lost, left, madeTwice, leaked: leaked.sutler },
      { lost: [], left: [], madeTwice: [], leaked: [] },
    );
    // A claim whose volume the driver may still be making stays there until that must have ended.
    await until(async () => (await bed.readJournal()).length === 0, 'the journal is empty');
    assert.equal(bed.handles().length, (await pvsOf(bed)).length, 'each volume has a PV');
  }

  it(
    'loses and leaks nothing when its container is killed every few seconds',
    onBed(200, async (bed) => {
      let container = await bed.start(ARGS);
      await survives(bed, async () => {
        await delay(1_000 + Math.random() * 3_000);
        await container.kill();
        container = await bed.start(ARGS);
      });
    }),
  );

  it(
    'loses and leaks nothing when its Redis alone is killed every few seconds',
    onBed(200, async (bed) => {
      const container = await bed.start(ARGS);
      let kills = 0;
      await survives(bed, async () => {
        await delay(2_000 + Math.random() * 3_000);
        const children = [...(await childrenOf(container.pid ?? 0))];
        const [, redis] = children.find(([name]) => /^(redis|valkey)-server/.test(name)) ?? [];
        if (redis === undefined) return;
        process.kill(redis, 'SIGKILL');
        kills += 1;
      });
      assert.ok(kills > 0);
    }),
  );

  it(
    'loses and leaks nothing when replicas with a Redis each take turns',
    onBed(200, async (bed) => {
      const replicas: SutlerProcess[] = [await bed.start(ARGS), await bed.start(ARGS)];
      let turns = 0;
      await survives(bed, async () => {
        await delay(2_000 + Math.random() * 2_000);
        const replica = replicas.shift();
        await (turns % 2 === 0 ? replica?.kill() : replica?.stop());
        turns += 1;
        replicas.push(await bed.start(ARGS));
      });
    }),
  );
});

async function deleteAll(bed: DropInBed, names: readonly string[]): Promise<void> {
  for (const name of names) await bed.kube.delete(claims, { namespace: bed.namespace, name });
  await until(() => bed.handles().length === 0, 'all volumes are deleted');
}
