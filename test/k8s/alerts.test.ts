import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { stringify } from 'yaml';
import { findProgram } from '../harness/prometheus.ts';
import { K8S, readYaml } from '../harness/real-manifests.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: { readonly runbook: string };
}
interface PrometheusRule {
  readonly spec: { readonly groups: readonly [{ readonly rules: readonly Rule[] }] };
}

/** Series that make an alert fire, and others that don't, as `NAME VALUES` with a value each five
 * minutes. */
interface Case {
  readonly fires: readonly string[];
  readonly quiet: readonly string[];
}

const AT = '{job="sutler-ingest",instance="a",driver="d"}';
const JOBS = '{job="sutler-jobs",instance="b",driver="d",kind="claim"}';
const LEADS = `sutler_deletions_pending${AT} 0x40`;
const oldest = (cause: string, values: string): string =>
  `sutler_claims_pending_oldest_seconds{driver="d",class="c",cause="${cause}"} ${values}`;
const pending = (cause: string, values: string): string =>
  `sutler_claims_pending{driver="d",class="c",cause="${cause}"} ${values}`;
const status = (instance: string, value: string): string =>
  `leader_election_master_status{job="sutler-ingest",instance="${instance}",name="d"} ${value}`;
const failed = (check: string, values: string): string =>
  `sutler_check_failed{job="sutler-ingest",instance="a",check="${check}"} ${values}`;
const gateway = (value: string): string => `sutler_gateway_driver_ready{instance="g"} ${value}`;

const CASES: Readonly<Record<string, Case>> = {
  SutlerClaimsPending: {
    fires: [LEADS, oldest('ResourceExhausted', '0+300x40')],
    quiet: [
      LEADS,
      oldest('Limited', '1000x40'),
      oldest('WaitForFirstConsumer', '0+300x40'),
      oldest('Drained', '0+300x40'),
      oldest('ResourceExhausted', '300x40'),
    ],
  },
  SutlerClaimsSlow: {
    fires: [LEADS, oldest('DeadlineExceeded', '0+300x40')],
    quiet: [LEADS, oldest('DeadlineExceeded', '3000x40'), oldest('Drained', '0+300x40')],
  },
  SutlerNoLeader: {
    fires: [LEADS, status('a', '0x40'), status('b', '0x40')],
    quiet: [LEADS, status('a', '1x40'), status('b', '0x40')],
  },
  SutlerNoWorker: {
    fires: [LEADS, pending('NoWorker', '3x40')],
    quiet: [LEADS, pending('Queued', '3x40')],
  },
  SutlerDriverUnreachable: {
    fires: [LEADS, `sutler_queue_driver_down${JOBS} 1x40`],
    quiet: [LEADS, `sutler_queue_driver_down${JOBS} 0 1 1 0x40`],
  },
  SutlerGatewayNotReady: {
    fires: [LEADS, gateway('0x40')],
    quiet: [LEADS, gateway('1x40')],
  },
  SutlerDrained: {
    fires: [LEADS, `sutler_drained${AT} 1x40`],
    quiet: [LEADS, `sutler_drained${AT} 0x27 1x12`],
  },
  SutlerJournalOff: {
    fires: [LEADS, `sutler_journal_off${AT} 1x40`],
    quiet: [LEADS, `sutler_journal_off${AT} 0x40`],
  },
  SutlerJournalStuck: {
    fires: [LEADS, `sutler_journal_entries${AT} 3x40`, `sutler_queue_runs_in_flight${JOBS} 2x40`],
    quiet: [
      LEADS,
      `sutler_journal_entries${AT} 3x40`,
      `sutler_queue_runs_in_flight${JOBS} 2x40`,
      pending('Later', '1x40'),
    ],
  },
  SutlerVolumesOrphaned: {
    fires: [LEADS, `sutler_orphan_volumes${AT} 2x40`],
    quiet: [LEADS, `sutler_orphan_volumes${AT} 0x40`],
  },
  SutlerVolumesMissing: {
    fires: [LEADS, `sutler_missing_volumes${AT} 2x40`],
    quiet: [LEADS, `sutler_missing_volumes${AT} 0x40`],
  },
  SutlerRedisAway: {
    fires: [LEADS, failed('ingest/redis-settings', '1x40')],
    quiet: [LEADS, failed('redis', '1x36 _x3')],
  },
  SutlerNotReady: {
    fires: [LEADS, failed('kubernetes', '1x40')],
    quiet: [LEADS, failed('driver', '1x40'), failed('kubernetes', '1x36 _x3')],
  },
  SutlerRedisLostData: {
    fires: [LEADS, `sutler_queue_redis_emptied_total${AT} _x29 1x10`],
    quiet: [LEADS, `sutler_queue_redis_emptied_total${AT} 1x40`],
  },
  SutlerDown: {
    fires: [LEADS, 'up{job="sutler-jobs",instance="b"} 0x40'],
    quiet: [LEADS, 'up{job="sutler-jobs",instance="b"} 1x40', 'up{job="other"} 0x40'],
  },
};

const [{ spec }] = readYaml('monitoring/prometheus-rule.yaml') as readonly [PrometheusRule];
const [{ rules }] = spec.groups;
const dashboard = readFileSync(join(K8S, 'monitoring/grafana-dashboard.json'), 'utf8');
const document = (path: string): string => readFileSync(join(K8S, '..', path), 'utf8');

const PROMTOOL = findProgram('promtool');

describe('k8s/monitoring', () => {
  it('asks for metrics that docs/metrics.md has', () => {
    const queries = [
      ...rules.map(({ expr }) => expr),
      ...[...dashboard.matchAll(/"expr": (".*")/g)].map(
        ([, text = '']) => JSON.parse(text) as string,
      ),
    ];
    assert.ok(queries.length > 30);
    const known = new Set(
      [...document('docs/metrics.md').matchAll(/^- `(\w+)`/gm)].map(([, name]) => name),
    );
    const unknown = queries
      .flatMap((text) => text.match(/\b(?:sutler|controller|csi|workqueue|leader)_\w+/g) ?? [])
      .filter((name) => !known.has(name) && !known.has(name.replace(/_(?:bucket|count|sum)$/, '')));
    assert.deepEqual(unknown, []);
  });

  it('has panels of their own number, which fill Grafana’s grid of 24 columns once', () => {
    const { panels } = JSON.parse(dashboard) as {
      readonly panels: readonly {
        readonly id: number;
        readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
      }[];
    };
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => (y + Math.floor(i / w)) * 24 + x + (i % w)),
    );
    assert.deepEqual(
      cells.toSorted((a, b) => a - b),
      Array.from(cells, (_, i) => i),
    );
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  });

  it('has a run book in docs/ for each alert, at the place that it names', () => {
    for (const { alert, annotations } of rules) {
      const [path = '', anchor = ''] = annotations.runbook.split('#');
      const text = document(path);
      const heading = new RegExp(`^## ${anchor}$`, 'im').exec(text);
      assert.ok(heading !== null, annotations.runbook);
      if (anchor === 'alerts') assert.ok(text.includes(`**${alert}**`), alert);
    }
  });

  it('has a case below for each alert', () =>
    assert.deepEqual(
      rules.map(({ alert }) => alert),
      Object.keys(CASES),
    ));
});

/** What must fire after 190 minutes of these series. */
const outcomes = [
  ...Object.entries(CASES).flatMap(([alert, { fires, quiet }]) => [
    { name: `${alert} fires`, series: fires, alerts: [alert] },
    { name: `${alert} stays quiet`, series: quiet, alerts: [] },
  ]),
  {
    name: 'SutlerNoLeader fires where Prometheus finds no ingest',
    series: ['up{job="sutler-jobs"} 1x40'],
    alerts: ['SutlerNoLeader'],
  },
];

describe(
  'k8s/monitoring, by promtool',
  { skip: PROMTOOL === undefined && 'no promtool on PATH (of Prometheus)' },
  () => {
    it('has each alert fire for its series, and no other', () => {
      const folder = mkdtempSync(join(tmpdir(), 'sutler-alerts-'));
      const tests = outcomes.map(({ name, series, alerts }) => ({
        name,
        interval: '5m',
        input_series: series.map((each) => {
          const at = each.indexOf('} ') + 1;
          return { series: each.slice(0, at), values: each.slice(at + 1) };
        }),
        promql_expr_test: [
          {
            expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
            eval_time: '190m',
            exp_samples: alerts.map((alert) => ({ labels: `{alertname="${alert}"}`, value: 1 })),
          },
        ],
      }));
      try {
        writeFileSync(join(folder, 'rules.yaml'), stringify(spec));
        const file = join(folder, 'test.yaml');
        writeFileSync(
          file,
          stringify({ rule_files: ['rules.yaml'], evaluation_interval: '5m', tests }),
        );
        execFileSync(PROMTOOL ?? '', ['test', 'rules', file], { encoding: 'utf8', stdio: 'pipe' });
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  },
);
