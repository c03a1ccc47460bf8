import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { childrenOf } from '../../bench/proc.ts';
import { Connection } from '../conformance/connection.ts';
import { churn, type ChangeOverResult } from '../harness/change-over/scenario.ts';
import { DropInBed } from '../harness/drop-in-bed.ts';
import type { SutlerProcess } from '../harness/program.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';
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

const open = realControlPlane(process.env, { binder: true, hasDefaultLimit: true });

describe('sutler in the place of external-provisioner, with exactly its rights', () => {
  const closers = new Closers();
  let plane: RealControlPlane;
  let api: Connection;
  before(async () => {
    plane = await open();
    closers.add('cluster', () => plane.close());
    api = new Connection(plane);
    closers.add('connection', () => api.close());
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  async function openBed(driverDelayMs = 0): Promise<DropInBed> {
    const namespace = await api.namespace();
    const ownKubeconfig = await grantUpstreamRules(api, plane, namespace);
    const { kubeconfig } = plane;
    return DropInBed.open({ kubeconfig, ownKubeconfig, namespace, driverDelayMs });
  }

  const close = async (bed: DropInBed) => assert.deepEqual(await bed.close(), []);

  it('binds 20 claims and deletes their volumes, and is refused nothing', async () => {
    const bed = await openBed();
    try {
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
    } finally {
      await close(bed);
    }
  });

  it('names a right that it lacks, with its rule, and goes on once a role grants it', async () => {
    const bed = await openBed();
    try {
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
    } finally {
      await close(bed);
    }
  });

  it('goes back to external-provisioner after it was killed, without a command', async (t) => {
    const upstream = process.env['EXTERNAL_PROVISIONER'] ?? '';
    if (upstream === '') {
      t.skip('needs EXTERNAL_PROVISIONER');
      return;
    }
    const bed = await openBed(500);
    const { namespace } = bed;
    try {
      const sutler = await bed.start(ARGS);
      const names = Array.from({ length: 20 }, (_, i) => `back-${i}`);
      await Promise.all(names.map((name) => bed.createClaim(name)));
      await until(() => (bed.driver.counts.get('CreateVolume') ?? 0) > 5, 'creations have begun');
      await sutler.kill();
      const args = ARGS.filter((arg) => !arg.startsWith('--settle-time'));
      await bed.start(args, {}, upstream);
      for (const name of names) await until(() => bed.isBound(name), `${name} is Bound`);
      assert.deepEqual(bed.ledger.madeAgain(), []);
      for (const name of names) await bed.kube.delete(claims, { namespace, name });
      await until(() => bed.handles().length === 0, 'all volumes are deleted');
    } finally {
      await close(bed);
    }
  });

  const judge = (name: string, result: ChangeOverResult): void => {
    const { made, lost, left, madeTwice, madeAgain, leaked } = result;
    process.stdout.write(
      `${name}: made ${made.sutler}, lost ${lost.length}, left ${left.join(', ') || 0}, ` +
        `twice ${madeTwice.length}, again ${madeAgain.length}, leaked ${leaked.sutler.length}\n`,
    );
    // A volume that is made again for a claim that is gone is deleted again.
    assert.deepEqual(
      { lost, left, madeTwice, leaked: leaked.sutler },
      { lost: [], left: [], madeTwice: [], leaked: [] },
    );
  };
  const PLAN = { claims: 600, perSecond: 20, bursts: 1, deleteWithinMs: 3_000 };

  it('loses and leaks nothing when its container is killed every few seconds', async () => {
    const bed = await openBed(200);
    try {
      let container = await bed.start(ARGS);
      let kills = 0;
      const result = await churn(bed, PLAN, async () => {
        await delay(1_000 + Math.random() * 3_000);
        await container.kill();
        kills += 1;
        container = await bed.start(ARGS);
      });
      judge(`${kills} kills`, result);
      await untilJournalIsEmpty(bed);
      await container.stop();
    } finally {
      await close(bed);
    }
  });

  it('loses and leaks nothing when its Redis alone is killed every few seconds', async () => {
    const bed = await openBed(200);
    try {
      const container = await bed.start(ARGS);
      let kills = 0;
      const result = await churn(bed, PLAN, async () => {
        await delay(2_000 + Math.random() * 3_000);
        const children = [...(await childrenOf(container.pid ?? 0))];
        const [, redis] = children.find(([name]) => /^(redis|valkey)-server/.test(name)) ?? [];
        if (redis === undefined) return;
        process.kill(redis, 'SIGKILL');
        kills += 1;
      });
      judge(`${kills} kills of Redis`, result);
      assert.ok(kills > 0);
      await untilJournalIsEmpty(bed);
      await container.stop();
    } finally {
      await close(bed);
    }
  });

  it('loses and leaks nothing when replicas with a Redis each take turns', async () => {
    const bed = await openBed(200);
    try {
      const replicas: SutlerProcess[] = [await bed.start(ARGS), await bed.start(ARGS)];
      let turns = 0;
      const result = await churn(bed, PLAN, async () => {
        await delay(2_000 + Math.random() * 2_000);
        const replica = replicas.shift();
        await (turns % 2 === 0 ? replica?.kill() : replica?.stop());
        turns += 1;
        replicas.push(await bed.start(ARGS));
      });
      judge(`${turns} changes of leader`, result);
      await untilJournalIsEmpty(bed);
      await Promise.all(replicas.map((replica) => replica.stop()));
    } finally {
      await close(bed);
    }
  });
});

/** A claim whose volume the driver may still be making stays in the journal until that must have
 * ended. */
async function untilJournalIsEmpty(bed: DropInBed): Promise<void> {
  const startMs = Date.now();
  await until(async () => (await bed.readJournal()).length === 0, 'the journal is empty');
  process.stdout.write(`the journal was empty ${Date.now() - startMs} ms later\n`);
  assert.deepEqual(bed.handles().length, await countVolumes(bed), 'each volume has a PV');
}

async function countVolumes({ kube, className }: DropInBed): Promise<number> {
  const { items } = await kube.list<Volume>(volumes, {});
  return items.filter(({ spec }) => spec.storageClassName === className).length;
}
