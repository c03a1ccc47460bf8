import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { stringify } from 'yaml';
import type { Closers } from '#src/runtime/closers.ts';
import { freePort } from './free-port.ts';
import { startProgram } from './program.ts';
import { until } from './until.ts';

/** What a series says: its labels and values; NaN where there is none. */
export interface Series {
  readonly labels: Readonly<Record<string, string>>;
  readonly values: readonly number[];
}

/** A process to scrape, with the labels `namespace`, `job` and `container` as the operator of
 * Prometheus gives them. */
export interface Target {
  readonly url: string;
  readonly job: string;
  readonly container: string;
}

/** A real Prometheus, which scrapes each second. */
export interface Prometheus {
  /** Replaces what is scraped. */
  setTargets(targets: readonly Target[]): Promise<void>;
  /** What a query says now. */
  query(expr: string): Promise<readonly Series[]>;
  /** What a query says, each second since then. */
  history(expr: string): Promise<readonly Series[]>;
  /** What /api/v1/PATH answers. */
  get(path: string): Promise<unknown>;
}

/** Path of a program of Prometheus; undefined: it is not on PATH. */
export function findProgram(name: 'prometheus' | 'promtool'): string | undefined {
  return (process.env['PATH'] ?? '')
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));
}

/** Why tests with a real Prometheus are skipped; false: they run. */
export const skipsPrometheus =
  findProgram('prometheus') === undefined && 'no prometheus on PATH: Debian’s package has it';

/** Starts one, and waits until it has scraped everything.
 * @param o.rules  the spec of a PrometheusRule */
export async function startPrometheus(o: {
  readonly folder: string;
  readonly targets: readonly Target[];
  readonly rules?: object;
  readonly closers: Closers;
}): Promise<Prometheus> {
  const { folder, rules = { groups: [] }, closers } = o;
  const port = await freePort();
  const file = (name: string): string => join(folder, name);
  const setTargets = (targets: readonly Target[]): Promise<void> =>
    writeFile(
      file('targets.json'),
      JSON.stringify(
        targets.map(({ url, job, container }) => ({
          targets: [new URL(url).host],
          labels: { job, container, namespace: 'sutler' },
        })),
      ),
    );
  await setTargets(o.targets);
  await writeFile(file('rules.yaml'), stringify(rules));
  await writeFile(
    file('prometheus.yaml'),
    stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: ['rules.yaml'],
      scrape_configs: [
        {
          job_name: 'sutler',
          file_sd_configs: [{ files: ['targets.json'], refresh_interval: '1s' }],
        },
      ],
    }),
  );
  const program = startProgram(
    findProgram('prometheus') ?? '',
    [
      `--config.file=${file('prometheus.yaml')}`,
      `--storage.tsdb.path=${file('prometheus-data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    { cwd: folder, keptOutput: 4_000 },
  );
  closers.add('Prometheus', () => program.stop(5_000));
  const url = `http://127.0.0.1:${port}`;
  await until(async () => {
    if (program.hasEnded) throw new Error(`Prometheus ended: ${program.output()}`);
    const answer = await fetch(`${url}/-/ready`).catch(() => undefined);
    return answer?.ok === true;
  }, 'Prometheus is ready');
  const get = async (path: string): Promise<unknown> => {
    const answer = (await (await fetch(`${url}/api/v1/${path}`)).json()) as Answer;
    if (answer.status !== 'success') throw new Error(`${answer.error} at ${path}`);
    return answer.data;
  };
  const ask = async (path: string, params: Record<string, string>): Promise<readonly Series[]> => {
    const data = await get(`${path}?${new URLSearchParams(params).toString()}`);
    return (data as Result).result.map(({ metric, value, values = [value ?? [0, 'NaN']] }) => ({
      labels: metric,
      values: values.map(([, text]) => Number(text)),
    }));
  };
  const query = (expr: string): Promise<readonly Series[]> => ask('query', { query: expr });
  const isScraped = `count(up == 1) == ${o.targets.length}`;
  await until(async () => (await query(isScraped)).length > 0, 'all is scraped');
  const startMs = Date.now();
  return {
    setTargets,
    query,
    history: (expr) =>
      ask('query_range', {
        query: expr,
        start: String(startMs / 1_000),
        end: String(Date.now() / 1_000),
        step: '1',
      }),
    get,
  };
}

interface Answer {
  readonly status: string;
  readonly error?: string;
  readonly data: unknown;
}

type Sample = readonly [number, string];

interface Result {
  readonly result: readonly {
    readonly metric: Series['labels'];
    readonly value?: Sample;
    readonly values?: readonly Sample[];
  }[];
}
