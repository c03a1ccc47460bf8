import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import type { Claim } from '#src/kube/objects.ts';
import { leaseName } from '#src/election/lease.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import { DRAIN } from '#src/kube/keys.ts';
import { claims, leases } from '#src/kube/resources.ts';
import { percentile } from '../../bench/percentile.ts';
import { startWorkload, type Track, type Workload } from '../../bench/workload.ts';
import { type ChangeOverBed, openChangeOverBed } from '../harness/change-over/bed.ts';
import type { SutlerProcess } from '../harness/program.ts';
import { openDropInBed } from '../harness/drop-in-bed.ts';
import {
  type Prometheus,
  skipsPrometheus,
  startPrometheus,
  type Target,
} from '../harness/prometheus.ts';
import { K8S, readYaml } from '../harness/real-manifests.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const CLAIMS = 600;
/** How much sooner alerts fire than in a cluster, so that a wrong one shows in a short run. */
const SOONER = 30;

interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly for?: string;
}
interface PrometheusRule {
  readonly spec: {
    readonly groups: readonly [{ readonly name: string; readonly rules: readonly Rule[] }];
  };
}
/** What /api/v1/rules says. */
interface Groups {
  readonly groups: readonly {
    readonly rules: readonly { readonly name: string; readonly health: string }[];
  }[];
}
/** PromQL, and the value that it has. */
type Sums = Readonly<Record<string, number | undefined>>;
interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string }[];
  }[];
}

interface ScaledObject {
  readonly spec: {
    readonly triggers: readonly { readonly metadata: { readonly query: string } }[];
  };
}

const [scaledObject] = readYaml('autoscaling/keda/scaled-object.yaml') as readonly [ScaledObject];
const [{ spec }] = readYaml('monitoring/prometheus-rule.yaml') as readonly [PrometheusRule];
const [{ name, rules }] = spec.groups;
const dashboard = JSON.parse(
  readFileSync(join(K8S, 'monitoring/grafana-dashboard.json'), 'utf8'),
) as Dashboard;
/** The rules, with alerts that fire SOONER. */
const scaled = {
  groups: [
    {
      name,
      rules: rules.map((rule) => {
        const [, count = '0', unit] = /^(\d+)([mh])$/.exec(rule.for ?? '') ?? [];
        const seconds = (Number(count) * (unit === 'h' ? 3_600 : 60)) / SOONER;
        return rule.alert === undefined ? rule : { ...rule, for: `${seconds}s` };
      }),
    },
  ],
};
const isMeasured = async (processes: readonly { readonly url: string }[]): Promise<boolean> => {
  const pages = processes.map(async ({ url }) => (await fetch(`${url}/metrics`)).text());
  return /^sutler_deletions_pending\{/m.test((await Promise.all(pages)).join(''));
};
/** Gauges of what an installation has, which the leader alone tells. */
const OF_LEADER =
  'sutler_(claims_pending|claims_pending_oldest_seconds|deletions_pending|drained|journal_entries|claims_in_doubt|journal_off)';

describe('a Prometheus beside two ingest and two jobs', { skip: skipsPrometheus }, () => {
  const closers = new Closers();
  let bed: ChangeOverBed;
  let workload: Workload;
  let prometheus: Prometheus;
  let ingest: SutlerProcess[];
  let jobs: SutlerProcess[];
  let made: readonly Track[] = [];
  const signal = AbortSignal.timeout(600_000);
  const names = (prefix: string, count: number): string[] =>
    Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
  const targets = (): readonly Target[] => [
    { job: 'sutler-gateway', container: 'csi-gateway', url: bed.gateway.url },
    ...ingest.map(({ url }) => ({ job: 'sutler-ingest', container: 'ingest', url })),
    ...jobs.map(({ url }) => ({ job: 'sutler-jobs', container: 'jobs', url })),
  ];
  const valueOf = async (expr: string): Promise<number | undefined> =>
    (await prometheus.query(expr))[0]?.values[0];
  /** Waits for the next measure of the leader, and its scrape; undefined: no process has it. */
  const says = async (sums: () => Promise<Sums> | Sums): Promise<void> => {
    for (const expr of Object.keys(await sums())) {
      let told: number | undefined;
      let expected: number | undefined;
      const agrees = async (): Promise<boolean> => {
        expected = (await sums())[expr];
        return (told = await valueOf(expr)) === expected;
      };
      await until(agrees, expr, 20_000).catch(() => assert.equal(told, expected, expr));
    }
  };

  before(async () => {
    const cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    const { kubeconfig } = cluster;
    bed = await openChangeOverBed({ kubeconfig, workerThreads: 10, driverDelayMs: 400 });
    closers.add('bed', async () => assert.deepEqual(await bed.close(), []));
    ingest = [await bed.startIngest(), await bed.startIngest()];
    jobs = [await bed.startJobs(), await bed.startJobs()];
    await until(() => isMeasured(ingest), 'a leader measures');
    const { folder } = bed;
    prometheus = await startPrometheus({ folder, targets: targets(), rules: scaled, closers });
    const { kube: client, driver, namespace } = bed;
    const pace = { concurrency: 20, log: silentLog };
    workload = await startWorkload({ client, driver, namespace, ...pace });
    closers.add('workload', () => workload.stop());
    made = await workload.create(names('load', CLAIMS), signal);
    await workload.remove(names('load', CLAIMS / 2), signal);
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  it('has data for each query of the dashboard, and for that of the ScaledObject', async () => {
    const hasData = async (expr: string): Promise<boolean> => {
      const series = await prometheus.history(expr.replaceAll('$__rate_interval', '5s'));
      return series.some(({ values }) => values.some((each) => !Number.isNaN(each)));
    };
    for (const { title, targets: queries } of dashboard.panels)
      for (const { expr } of queries)
        await until(() => hasData(expr), `${title} has data: ${expr}`, 20_000);
    for (const { metadata } of scaledObject.spec.triggers)
      await until(() => hasData(metadata.query), metadata.query, 20_000);
  });

  it('evaluates each rule, and fires no alert', async () => {
    const { groups } = (await prometheus.get('rules')) as Groups;
    assert.deepEqual(
      groups.flatMap((group) => group.rules.map((rule) => [rule.name, rule.health])),
      rules.map(({ alert, record }) => [alert ?? record, 'ok']),
    );
    const fired = await prometheus.history('ALERTS{alertstate="firing"}');
    assert.deepEqual(
      fired.map(({ labels }) => labels['alertname']),
      [],
    );
  });

  it('tells quantiles from the creation of a claim to its volume as a client does', async (t) => {
    for (const share of [0.5, 0.9, 0.99]) {
      const told = await valueOf(
        `histogram_quantile(${share}, sum by (le) (sutler_claim_created_to_volume_seconds_bucket))`,
      );
      assert.ok(told);
      // The API server creates a claim between the two.
      const [sent = NaN, answered = NaN] = (['sentMs', 'answeredMs'] as const).map((from) =>
        percentile(
          made.map((track) => ((track.volumeMs ?? NaN) - (track[from] ?? NaN)) / 1_000),
          share,
        ),
      );
      const measured = `${answered.toFixed(3)} to ${sent.toFixed(3)} s`;
      t.diagnostic(`${share}: ${told.toFixed(3)} s, of the client ${measured}`);
      assert.ok(told > 0.95 * answered && told < 1.05 * sent, `${told} s in place of ${measured}`);
    }
  });

  it('has right sums over processes: while drained, where all workers died, and of a new leader', async () => {
    const drain = (text: string | null): Promise<unknown> =>
      bed.kube.patch(
        leases,
        { namespace: bed.namespace, name: leaseName(bed.driver) },
        { type: 'merge', body: { metadata: { annotations: { [DRAIN]: text } } } },
      );
    await says(() => ({ 'sum(sutler_drained)': 0, 'sum(sutler_journal_off)': 0 }));
    await drain(JSON.stringify({ by: 'test', at: new Date().toISOString() }));
    await Promise.all(names('drained', 7).map((each) => workload.createOnly(each)));
    await says(() => ({
      'sum(sutler_drained)': 1,
      'sum by (cause) (sutler_claims_pending)': 7,
      'count(sutler_claims_pending_oldest_seconds)': 1,
    }));
    await drain(null);
    await says(() => ({
      'sum(sutler_drained)': 0,
      'sum(sutler_claims_pending)': undefined,
      'sum(sutler_journal_entries)': 0,
    }));

    await Promise.all(names('left', 100).map((each) => workload.createOnly(each)));
    const place = { driver: bed.driver, lease: leaseName(bed.driver), namespace: bed.namespace };
    const noted = async (): Promise<number> => (await listJournal(bed.kube, place)).length;
    await until(async () => (await noted()) > 0, 'some are begun');
    await Promise.all(jobs.map((each) => each.kill()));
    jobs = [];
    await prometheus.setTargets(targets());
    await Promise.all(
      names('load', 3).map(async (_, i) => {
        const claim = `load-${CLAIMS - 1 - i}`;
        await bed.kube.delete(claims, { namespace: bed.namespace, name: claim });
      }),
    );
    const unbound = async (): Promise<number> => {
      const { items } = await bed.kube.list<Claim>(claims, { namespace: bed.namespace });
      return items.filter(({ status }) => status?.phase !== 'Bound').length;
    };
    const left = async (): Promise<Sums> => ({
      'sum(sutler_journal_off)': 0,
      'sum(sutler_claims_pending)': await unbound(),
      'sum(sutler_deletions_pending)': 3,
      'sum by (name) (workqueue_depth{name="volumes"})': 3,
    });
    await says(left);
    const ofLeader = `count(count by (instance) ({__name__=~"${OF_LEADER}"}))`;
    await says(() => ({ [ofLeader]: 1 }));

    const led = await prometheus.query('sutler_deletions_pending');
    const leader = ingest.find(({ url }) => url.endsWith(led[0]?.labels['instance'] ?? '-'));
    await leader?.stop();
    ingest = ingest.filter((each) => each !== leader);
    assert.equal(ingest.length, 1);
    await prometheus.setTargets(targets());
    await says(async () => ({ ...(await left()), [ofLeader]: 1 }));
  });
});

describe(
  'a Prometheus beside sutler all, by the driver’s own monitor',
  { skip: skipsPrometheus },
  () => {
    it('fires no alert while claims come, and two once the process was killed', async () => {
      const closers = new Closers();
      try {
        const { kubeconfig, close } = await openSandboxCluster({ binder: true });
        closers.add('cluster', close);
        const bed = await openDropInBed({ kubeconfig, namespace: 'default' });
        closers.add('bed', async () => assert.deepEqual(await bed.close(), []));
        const folder = await mkdtemp(join(tmpdir(), 'sutler-monitoring-'));
        closers.add('folder', () => rm(folder, { recursive: true }));
        const { url, kill } = await bed.start(['--leader-election']);
        await until(() => isMeasured([{ url }]), 'it leads', 30_000);
        const targets = [{ job: 'kube-system/ebs-csi', container: 'csi-provisioner', url }];
        const prometheus = await startPrometheus({ folder, targets, rules: scaled, closers });
        const firing = async (): Promise<readonly (string | undefined)[]> => {
          const series = await prometheus.history('ALERTS{alertstate="firing"}');
          return [...new Set(series.map(({ labels }) => labels['alertname']))].toSorted();
        };
        // Longer than most alerts wait.
        for (let i = 0; i < 20; i += 1) {
          await bed.createClaim(`claim-${i}`);
          await until(() => bed.isBound(`claim-${i}`), `claim-${i} is Bound`);
          await systemClock.sleep(500);
        }
        assert.deepEqual(await firing(), []);
        await kill();
        await until(async () => (await firing()).length === 2, 'alerts fire', 30_000);
        assert.deepEqual(await firing(), ['SutlerDown', 'SutlerNoLeader']);
      } finally {
        assert.deepEqual(await closers.close(), []);
      }
    });
  },
);
