import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Closers } from '#src/runtime/closers.ts';
import {
  type BedOptions,
  type ChangeOverBed,
  openChangeOverBed,
} from '../harness/change-over/bed.ts';
import { type ChurnPlan, churn, type Startable } from '../harness/change-over/scenario.ts';
import { readAuditLog } from '../harness/least-privilege/audited-rights.ts';
import { grantShipped, HOME } from '../harness/least-privilege/shipped-rights.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(import.meta.resolve('#src/cli.ts'));
/** `dist/cli.js` of another version; without it processes of one version are replaced. */
const OTHER = process.env['OTHER_SUTLER'] ?? CLI;
const claims = Number(process.env['UPDATE_CLAIMS'] ?? 600);
const PLAN: ChurnPlan = { claims, perSecond: 20, bursts: 1, deleteWithinMs: 3_000 };
const NOTHING = { lost: [], madeTwice: [], left: [], leaked: [], refused: [] };

/** On kube-apiserver ingest and jobs have exactly the rights of k8s/; the sandbox has no roles. */
const isReal = (process.env['KUBEBUILDER_ASSETS'] ?? '') !== '';
const auditedGroup = `system:serviceaccounts:${HOME}`;

describe('while claims are created and deleted', () => {
  const closers = new Closers();
  let kubeconfig = '';
  let bed: ChangeOverBed;
  let accounts: BedOptions['accounts'];
  let refused = (): Promise<readonly string[]> => Promise.resolve([]);
  before(async () => {
    const plane = isReal
      ? await realControlPlane(process.env, { binder: true, auditedGroup })()
      : undefined;
    const cluster = plane ?? (await openSandboxCluster({ binder: true }));
    closers.add('cluster', () => cluster.close());
    ({ kubeconfig } = cluster);
    if (plane !== undefined) ({ accounts, refused } = await grantBoth(plane));
  });
  beforeEach(async () => {
    const common = { workerThreads: 10, driverDelayMs: 200 };
    bed = await openChangeOverBed({ kubeconfig, accounts, ...common });
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  /** Creates and deletes claims, while each step begins when the driver has made some volumes since
   * the one before; from the first again after the last.
   * @returns what is not as it should be, and how many steps were taken */
  async function disturb(steps: readonly (() => Promise<void>)[]) {
    let taken = 0;
    const result = await churn(bed, PLAN, async () => {
      const from = bed.ledger.creations;
      const endMs = Date.now() + 1_000;
      // Fewer are made where many claims are deleted before that.
      await until(() => bed.ledger.creations >= from + 20 || Date.now() > endMs, 'some volumes');
      await steps[taken % steps.length]?.();
      taken += 1;
    });
    const { lost, madeTwice, left, leaked } = result;
    const faults = { lost, madeTwice, left, leaked: leaked.sutler };
    return { taken, faults: { ...faults, refused: await refused() } };
  }

  it('each process is replaced by one of another version, and back, and no volume is lost', async (t) => {
    const starts = {
      gateway: (cli: string) => bed.startGateway(cli),
      ingest: (cli: string) => bed.startIngest(cli),
      standby: (cli: string) => bed.startIngest(cli),
      jobs: (cli: string) => bed.startJobs(cli),
      'more jobs': (cli: string) => bed.startJobs(cli),
    };
    type Part = keyof typeof starts;
    const running = new Map<Part, Startable>();
    const replace = (part: Part, cli: string) => async (): Promise<void> => {
      await running.get(part)?.stop();
      running.set(part, await starts[part](cli));
    };
    await bed.gateway.stop();
    const parts = Object.keys(starts) as Part[];
    for (const part of parts) await replace(part, OTHER)();
    const orders: readonly (readonly Part[])[] = [
      ['ingest', 'standby', 'jobs', 'more jobs', 'gateway'],
      ['gateway', 'more jobs', 'jobs', 'standby', 'ingest'],
    ];
    const steps = orders.flatMap((order) =>
      [CLI, OTHER].flatMap((cli) => order.map((part) => replace(part, cli))),
    );
    const { taken, faults } = await disturb(steps);
    assert.deepEqual(await bed.close(), []);
    t.diagnostic(`${taken} processes were replaced`);
    assert.deepEqual(faults, NOTHING);
    assert.ok(taken >= 2 * parts.length, `only ${taken} processes were replaced`);
  });

  it('workers go from one to four, to none and to one, and no volume is lost', async (t) => {
    const ingest = await bed.startIngest();
    const workers: Startable[] = [];
    const scaleTo = (count: number) => async (): Promise<void> => {
      while (workers.length < count) workers.push(await bed.startJobs());
      await Promise.all(workers.splice(count).map((worker) => worker.stop()));
    };
    await scaleTo(1)();
    const noneForAWhile = async (): Promise<void> => {
      await scaleTo(0)();
      await scaleTo(1)();
    };
    const { taken, faults } = await disturb([scaleTo(4), noneForAWhile]);
    t.diagnostic(`scaled ${taken} times`);
    await ingest.stop();
    assert.deepEqual(await bed.close(), []);
    assert.deepEqual(faults, NOTHING);
    assert.ok(taken >= 4, `scaled only ${taken} times`);
  });
});

/** Grants the rights of k8s/, and those that docs/upgrade.md keeps during an update.
 * @returns besides, what lists the requests that the API server refused */
async function grantBoth(plane: RealControlPlane) {
  const { api } = plane;
  const { kubeconfigs: accounts } = await grantShipped(plane, { base: HOME, topology: HOME });
  const kept = [
    { apiGroups: [''], resources: ['persistentvolumeclaims'], verbs: ['patch'] },
    { apiGroups: ['snapshot.storage.k8s.io'], resources: ['volumesnapshots'], verbs: ['patch'] },
  ].map((value) => ({ op: 'add', path: '/rules/-', value }));
  const role = '/apis/rbac.authorization.k8s.io/v1/clusterroles/sutler-jobs';
  assert.equal((await api.patch('json', role, kept)).status, 200);
  const refused = async (): Promise<readonly string[]> => [
    ...readAuditLog(await readFile(plane.auditLog ?? '', 'utf8')).refused,
  ];
  return { accounts, refused };
}
