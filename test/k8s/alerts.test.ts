import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { stringify } from 'yaml';
import { CAUSES } from '#src/explain/causes.ts';
import { findProgram } from '../harness/prometheus.ts';
import { K8S, readYaml } from '../harness/real-manifests.ts';

interface Rule {
  readonly alert?: string;
  readonly expr: string;
  readonly annotations?: { readonly runbook_url: string };
}
interface PrometheusRule {
  readonly spec: { readonly groups: readonly [{ readonly rules: readonly Rule[] }] };
}

/** A series as promtool reads it: `NAME{LABELS} VALUES`. */
type Series = string;

/** Series with a value each five minutes that make an alert fire, and others that don't. */
interface Case {
  readonly fires: readonly Series[];
  readonly quiet: readonly Series[];
}

/** Labels of the targets of an installation, as text. */
interface Form {
  readonly ingest: string;
  readonly jobs: string;
  readonly gateway: string;
}

/** Labels that the operator of Prometheus gives to a target. */
const target = (namespace: string, job: string, container: string, instance: string): string =>
  `namespace="${namespace}",job="${job}",container="${container}",instance="${instance}"`;

const ALL = target('kube-system', 'kube-system/ebs-csi', 'csi-provisioner', '10.0.0.1:8080');
const DROP_IN: Form = { ingest: ALL, jobs: ALL, gateway: ALL };
const FORMS: Readonly<Record<string, Form>> = {
  'ingest, jobs and gateway by the monitors of k8s/monitoring': {
    ingest: target('sutler', 'sutler-ingest', 'ingest', '10.0.0.1:8081'),
    jobs: target('sutler', 'sutler-jobs', 'jobs', '10.0.0.2:8081'),
    gateway: target('ebs', 'sutler-gateway', 'csi-gateway', '10.0.0.3:23809'),
  },
  'sutler all by the driver’s own monitor': DROP_IN,
};

const AT = 'driver="d"';
const oldest = ({ ingest }: Form, cause: string, values: string): Series =>
  `sutler_claims_pending_oldest_seconds{${ingest},${AT},class="c",cause="${cause}"} ${values}`;
const pending = ({ ingest }: Form, cause: string, values: string): Series =>
  `sutler_claims_pending{${ingest},${AT},class="c",cause="${cause}"} ${values}`;

/** Series of an installation in which nothing is wrong. */
function healthy({ ingest, jobs, gateway }: Form): readonly Series[] {
  return [
    ...[...new Set([ingest, jobs, gateway])].map((labels) => `up{${labels}} 1x40`),
    ...[...new Set([ingest, jobs])].map((labels) => `sutler_kube_in_flight{${labels}} 96x40`),
    `sutler_gateway_driver_ready{${gateway}} 1x40`,
    `sutler_queue_dirty_keys{${ingest},${AT}} 0x40`,
    `sutler_deletions_pending{${ingest},${AT}} 0x40`,
  ];
}

/** Series in the place of those of the same name and labels. */
function replaced(series: readonly Series[], others: readonly Series[]): readonly Series[] {
  const identity = (each: Series): string => each.slice(0, each.indexOf('} ') + 1);
  const known = new Set(others.map(identity));
  return [...series.filter((each) => !known.has(identity(each))), ...others];
}

const casesOf = (form: Form): Readonly<Record<string, Case>> => {
  const { ingest, jobs, gateway } = form;
  const atIngest = `{${ingest},${AT}}`;
  const atJobs = `{${jobs},${AT},kind="claim"}`;
  const failed = (check: string, values: string): Series =>
    `sutler_check_failed{${ingest},check="${check}"} ${values}`;
  return {
    SutlerClaimsPending: {
      fires: [oldest(form, 'ResourceExhausted', '0+300x40')],
      quiet: [
        oldest(form, 'Limited', '1000x40'),
        oldest(form, 'WaitForFirstConsumer', '0+300x40'),
        oldest(form, 'Drained', '0+300x40'),
        oldest(form, 'ResourceExhausted', '300x40'),
      ],
    },
    SutlerClaimsSlow: {
      fires: [oldest(form, 'DeadlineExceeded', '0+300x40')],
      quiet: [oldest(form, 'DeadlineExceeded', '3000x40'), oldest(form, 'Drained', '0+300x40')],
    },
    SutlerDriverSlow: {
      fires: [oldest(form, 'DriverSlow', '0+300x40'), pending(form, 'DriverSlow', '3x40')],
      quiet: [
        oldest(form, 'DeadlineExceeded', '900x40'),
        pending(form, 'DeadlineExceeded', '3x40'),
      ],
    },
    SutlerNoLeader: {
      fires: [`sutler_deletions_pending${atIngest} _x40`],
      quiet: [`sutler_queue_dirty_keys{${ingest.replace('10.0.0.1', '10.0.0.9')},${AT}} 0x40`],
    },
    SutlerNoWorker: {
      fires: [pending(form, 'NoWorker', '3x40')],
      quiet: [pending(form, 'Queued', '3x40')],
    },
    SutlerDriverUnreachable: {
      fires: [`sutler_queue_driver_down${atJobs} 1x40`],
      quiet: [`sutler_queue_driver_down${atJobs} 0 1 1 0x40`],
    },
    SutlerGatewayNotReady: {
      fires: [`sutler_gateway_driver_ready{${gateway}} 0x40`],
      quiet: [],
    },
    SutlerDrained: {
      fires: [`sutler_drained${atIngest} 1x40`],
      quiet: [`sutler_drained${atIngest} 0x27 1x12`],
    },
    SutlerJournalOff: {
      fires: [`sutler_journal_off${atIngest} 1x40`],
      quiet: [`sutler_journal_off${atIngest} 0x40`],
    },
    SutlerJournalStuck: {
      fires: [
        `sutler_journal_entries${atIngest} 3x40`,
        `sutler_queue_runs_in_flight${atJobs} 2x40`,
      ],
      quiet: [
        `sutler_journal_entries${atIngest} 3x40`,
        `sutler_queue_runs_in_flight${atJobs} 2x40`,
        pending(form, 'Later', '1x40'),
      ],
    },
    SutlerVolumesOrphaned: {
      fires: [`sutler_orphan_volumes${atIngest} 2x40`],
      quiet: [`sutler_orphan_volumes${atIngest} 0x40`],
    },
    SutlerVolumesMissing: {
      fires: [`sutler_missing_volumes${atIngest} 2x40`],
      quiet: [`sutler_missing_volumes${atIngest} 0x40`],
    },
    SutlerRedisAway: {
      // What lacks Redis is not told besides.
      fires: [failed('ingest/redis-settings', '1x40'), failed('queues', '1x40')],
      quiet: [failed('redis', '1x36 _x3')],
    },
    SutlerNotReady: {
      fires: [failed('kubernetes', '1x40')],
      quiet: [failed('driver-calls', '1x40'), failed('kubernetes', '1x36 _x3')],
    },
    SutlerRedisLostData: {
      fires: [`sutler_queue_redis_emptied_total${atIngest} _x29 1x10`],
      quiet: [`sutler_queue_redis_emptied_total${atIngest} 1x40`],
    },
    SutlerDown: {
      // Of a pod that has never answered.
      fires: [`up{${jobs.replace(/10\.0\.0\.\d/, '10.0.0.9')}} 0x40`],
      quiet: [`up{${jobs.replace(/container="[^"]+"/, 'container="other"')}} 0x40`],
    },
  };
};

const [{ spec }] = readYaml('monitoring/prometheus-rule.yaml') as readonly [PrometheusRule];
const [{ rules }] = spec.groups;
const alerts = rules.flatMap(({ alert, annotations }) =>
  alert === undefined ? [] : [{ alert, url: annotations?.runbook_url ?? '' }],
);
const dashboard = readFileSync(join(K8S, 'monitoring/grafana-dashboard.json'), 'utf8');
const document = (path: string): string => readFileSync(join(K8S, '..', path), 'utf8');
const queries = [
  ...rules.map(({ expr }) => expr),
  ...[...dashboard.matchAll(/"expr": (".*")/g)].map(([, text = '']) => JSON.parse(text) as string),
];

const PROMTOOL = findProgram('promtool');

describe('k8s/monitoring', () => {
  it('asks for metrics that docs/metrics.md has', () => {
    assert.ok(queries.length > 30);
    const known = new Set(
      [...document('docs/metrics.md').matchAll(/^- `(\w+)`/gm)].map(([, name]) => name),
    );
    const unknown = queries
      .flatMap((text) => text.match(/\b(?:sutler|controller|csi|workqueue|leader)_\w+/g) ?? [])
      .filter((name) => !known.has(name) && !known.has(name.replace(/_(?:bucket|count|sum)$/, '')));
    assert.deepEqual(unknown, []);
  });

  it('asks for causes that there are', () => {
    const asked = queries.flatMap((text) =>
      [...text.matchAll(/\bcause *(?:=|!=|=~|!~) *"([^"]*)"/g)].flatMap(([, names = '']) =>
        names.split('|'),
      ),
    );
    assert.ok(asked.includes('DriverSlow'));
    assert.deepEqual(
      asked.filter((name) => !Object.hasOwn(CAUSES, name)),
      [],
    );
  });

  it('has a run book in docs/ for each alert, at the place that it names', () => {
    for (const { alert, url } of alerts) {
      const [path = '', anchor = ''] = url.split('#');
      const text = document(path);
      const heading = new RegExp(`^## ${anchor}$`, 'im').exec(text);
      assert.ok(heading !== null, url);
      if (anchor === 'alerts') assert.ok(text.includes(`**${alert}**`), alert);
    }
  });

  it('has cases above for each alert, in each form', () => {
    for (const form of Object.values(FORMS))
      assert.deepEqual(
        alerts.map(({ alert }) => alert),
        Object.keys(casesOf(form)),
      );
  });
});

/** What must fire after 190 minutes of these series. */
interface Outcome {
  readonly name: string;
  readonly series: readonly Series[];
  readonly alerts: readonly string[];
}

const ofForms: readonly Outcome[] = Object.entries(FORMS).flatMap(([name, form]) =>
  Object.entries(casesOf(form)).flatMap(([alert, { fires, quiet }]) => [
    {
      name: `${alert} fires, of ${name}`,
      series: replaced(healthy(form), fires),
      // The Redis of `sutler all` is empty at each of its starts.
      alerts: alert === 'SutlerRedisLostData' && form === DROP_IN ? [] : [alert],
    },
    // Of one form, in which each alert can fire.
    ...(form !== DROP_IN
      ? [{ name: `${alert} stays quiet`, series: replaced(healthy(form), quiet), alerts: [] }]
      : []),
  ]),
);

/** Of another installation for a driver of the same name. */
const OTHER: Form = {
  ingest: target('other', 'other-ingest', 'ingest', '10.1.0.1:8081'),
  jobs: target('other', 'other-jobs', 'jobs', '10.1.0.2:8081'),
  gateway: target('other', 'other-gateway', 'csi-gateway', '10.1.0.3:23809'),
};

/** The series of `sutler all`, which end after so many minutes.
 * @param up  what becomes of the series `up` then */
function gone(afterMinutes: number, up: string): readonly Series[] {
  const before = afterMinutes / 5 - 1;
  return healthy(DROP_IN).map((each) =>
    each.startsWith('up{')
      ? each.replace(/x40$/, `x${before} ${up}`)
      : each.replace(/x40$/, `x${before} stale`),
  );
}

const more: readonly Outcome[] = [
  {
    name: 'nothing fires where no sutler runs',
    series: [`up{${ALL}} 0x40`, `leader_election_master_status{${ALL},name="n"} 0x40`],
    alerts: [],
  },
  {
    name: 'SutlerRedisLostData stays quiet of an installation that is new',
    series: [
      ...healthy(OTHER).map((each) => each.replace(/ (\d+)x40$/, ' _x30 $1x10')),
      `sutler_queue_redis_emptied_total{${OTHER.ingest},${AT}} _x30 1x10`,
    ],
    alerts: [],
  },
  {
    name: 'SutlerNoLeader fires beside another installation that leads',
    series: [...healthy(OTHER), `sutler_queue_dirty_keys{${ALL},${AT}} 0x40`],
    alerts: ['SutlerNoLeader'],
  },
  {
    name: 'SutlerNoLeader fires where Prometheus finds no ingest any more',
    series: gone(150, 'stale'),
    alerts: ['SutlerNoLeader'],
  },
];

const asInput = (series: readonly Series[]): readonly object[] =>
  series.map((each) => {
    const at = each.indexOf('} ') + 1;
    return { series: each.slice(0, at), values: each.slice(at + 1) };
  });

describe(
  'k8s/monitoring, by promtool',
  { skip: PROMTOOL === undefined && 'no promtool on PATH (of Prometheus)' },
  () => {
    it('has each alert fire for its series, and no other, of each form', () => {
      const folder = mkdtempSync(join(tmpdir(), 'sutler-alerts-'));
      const interval = '5m';
      const tests = [...ofForms, ...more].map(({ name, series, alerts: expected }) => ({
        name,
        interval,
        input_series: asInput(series),
        promql_expr_test: [
          {
            expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
            eval_time: '190m',
            exp_samples: expected.map((alert) => ({
              labels: `{alertname="${alert}"}`,
              value: 1,
            })),
          },
        ],
      }));
      try {
        writeFileSync(join(folder, 'rules.yaml'), stringify(spec));
        const file = join(folder, 'test.yaml');
        const rule_files = ['rules.yaml'];
        writeFileSync(file, stringify({ rule_files, evaluation_interval: interval, tests }));
        execFileSync(PROMTOOL ?? '', ['test', 'rules', file], { encoding: 'utf8', stdio: 'pipe' });
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  },
);
