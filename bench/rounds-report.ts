import { percentile } from './percentile.ts';
import type { DrainResult, IdleResult, LatencyResult } from './rounds.ts';
import type { StepTime } from './step-times.ts';

/** Rounds of sutler, and of the peer if there is one. */
export interface Sides<T> {
  readonly sutler: readonly T[];
  readonly peer: readonly T[];
}

/** Medians of the rounds, per claim, and their ratios, as a table. */
export function drainText({ sutler, peer }: Sides<DrainResult>): string {
  const names = [...new Set([...sutler, ...peer].flatMap(({ usage }) => [...usage.keys()]))];
  const perClaim = (name: string) => (result: DrainResult) =>
    (result.usage.get(name) ?? 0) / result.claims;
  const isOwnCpu = (name: string): boolean =>
    /^(csi-gateway|ingest|jobs|redis-server|external-provisioner): CPU/.test(name);
  const ownCpu = (result: DrainResult): number =>
    names.filter(isOwnCpu).reduce((sum, name) => sum + perClaim(name)(result), 0);
  const line = (title: string, value: (result: DrainResult) => number): string =>
    compare(title, median(sutler.map(value)), median(peer.map(value)));
  return table([
    line('start to first PV, ms', ({ firstMs }) => firstMs),
    line('first to last PV, ms', ({ spanMs }) => spanMs),
    line('PV/s', ({ claims, spanMs }) => (claims / spanMs) * 1000),
    line('CPU of the provisioner with Redis, ms a claim', ownCpu),
    ...names
      .toSorted()
      .filter((name) =>
        [sutler, peer].some((results) => median(results.map(perClaim(name))) >= 0.01),
      )
      .map((name) => line(`${name}, a claim`, perClaim(name))),
  ]);
}

/** Medians of the rounds, per second, as a table. */
export function idleText({ sutler, peer }: Sides<IdleResult>): string {
  const names = [...new Set([...sutler, ...peer].flatMap(({ usage }) => [...usage.keys()]))];
  const line = (title: string, value: (result: IdleResult) => number): string =>
    compare(title, median(sutler.map(value)), median(peer.map(value)));
  const perSecond =
    (...some: readonly string[]) =>
    ({ usage, seconds }: IdleResult): number =>
      some.reduce((sum, name) => sum + (usage.get(name) ?? 0), 0) / seconds;
  /** CPU time of a second, 10 ms, is 1 % of a core. */
  const cores = (...some: readonly string[]) => {
    const ms = perSecond(...some);
    return (result: IdleResult): number => ms(result) / 10;
  };
  const cpu = names.filter((name) => name.endsWith(': CPU, ms'));
  const commands = names.filter((name) => name.startsWith('Redis: ')).toSorted();
  return table([
    line('CPU of all, % of a core', cores(...cpu)),
    line('Redis commands a second, with those in scripts', perSecond(...commands)),
    ...cpu.map((name) => line(`${name.replace(/, ms$/, '')}, % of a core`, cores(name))),
    ...names
      .filter((name) => name.endsWith(': wake-ups'))
      .map((name) => line(`${name} a second`, perSecond(name))),
    ...commands.map((name) => line(`${name} a second`, perSecond(name))),
  ]);
}

export interface Latencies {
  readonly started: LatencyResult;
  readonly warm: LatencyResult;
}

/** Medians of the rounds and their ratios, as a table. */
export function latencyText({ sutler, peer }: Sides<Latencies>): string {
  const line = (title: string, value: (result: Latencies) => number): string =>
    compare(title, median(sutler.map(value)), median(peer.map(value)));
  return table([
    line('just started: p50 ms', ({ started }) => started.p50Ms),
    line('just started: p99 ms', ({ started }) => started.p99Ms),
    line('after the warm-up: p50 ms', ({ warm }) => warm.p50Ms),
    line('after the warm-up: p99 ms', ({ warm }) => warm.p99Ms),
    ...stepLines(
      'just started',
      sutler.map(({ started }) => started.steps),
    ),
    ...stepLines(
      'after the warm-up',
      sutler.map(({ warm }) => warm.steps),
    ),
  ]);
}

/** The steps of sutler, in the columns of p50 and p99. */
function stepLines(title: string, rounds: readonly (readonly StepTime[])[]): readonly string[] {
  const [first = []] = rounds;
  if (first.length === 0) return [];
  const medianOf = (name: string, value: (step: StepTime) => number): number =>
    median(rounds.flatMap((steps) => steps.filter((step) => step.name === name).map(value)));
  return [
    `\n${`steps, ${title}`.padEnd(56)}${['p50 ms', 'p99 ms'].map((c) => c.padStart(10)).join('')}`,
    ...first.map(({ name }) =>
      row(
        `  ${name}`,
        medianOf(name, ({ p50Ms }) => p50Ms),
        medianOf(name, ({ p99Ms }) => p99Ms),
      ),
    ),
  ];
}

function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

function table(rows: readonly string[]): string {
  const head = ['sutler', 'peer', 'ratio'].map((cell) => cell.padStart(10)).join('');
  return `${''.padEnd(56)}${head}\n${rows.join('\n')}\n`;
}

function compare(title: string, sutler: number, peer: number): string {
  return row(title, sutler, peer, sutler / peer);
}

/** @param values a column each */
function row(title: string, ...values: readonly number[]): string {
  const cells = values.map((value) =>
    (Number.isFinite(value) ? value.toFixed(value < 100 ? 2 : 0) : '-').padStart(10),
  );
  return `${title.padEnd(56)}${cells.join('')}`;
}
