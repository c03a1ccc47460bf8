import { systemClock } from '#src/runtime/clock.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { percentile } from './percentile.ts';
import { CASES, plan, type PlanningCase } from './planning-cases.ts';
import { flags as table, summary } from './planning-flags.ts';

/** Budget: CPU time of one plan. */
const LIMIT_US = 50;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:planning', summary, table, start },
);

interface Result {
  readonly name: string;
  /** CPU time per plan in the median round and in the slowest one. */
  readonly medianUs: number;
  readonly worstUs: number;
}

async function start({
  flags,
  stopping,
  stdout,
  stop,
}: ProcessContext<typeof table>): Promise<void> {
  const { plans, rounds, json } = flags;
  const results: Result[] = [];
  for (const testCase of CASES) {
    const times: number[] = [];
    for (let round = 0; round <= rounds && !stopping.aborted; round += 1) {
      const us = await cpuUsPerPlan(testCase, plans);
      if (round > 0) times.push(us);
      // Lets the process handle signals between two rounds.
      await systemClock.sleep(0, stopping);
    }
    results.push({
      name: testCase.name,
      medianUs: percentile(times, 0.5),
      worstUs: percentile(times, 1),
    });
  }
  stdout.write(
    json
      ? `${JSON.stringify({ node: process.version, limitUs: LIMIT_US, results })}\n`
      : toText(results),
  );
  stop(0);
}

/** User and system time of the process, including garbage collection and compilation. */
async function cpuUsPerPlan(testCase: PlanningCase, plans: number): Promise<number> {
  const before = process.cpuUsage();
  for (let i = 0; i < plans; i += 1) await plan(testCase);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / plans;
}

function toText(results: readonly Result[]): string {
  const line = (name: string, cells: readonly string[]): string =>
    `${name.padEnd(28)}${cells.map((cell) => cell.padStart(14)).join('')}`;
  return [
    `planning on Node ${process.version}, limit ${LIMIT_US} µs`,
    line('CPU per plan', ['median round', 'worst round', 'of the limit']),
    ...results.map(({ name, medianUs, worstUs }) =>
      line(name, [
        `${medianUs.toFixed(1)} µs`,
        `${worstUs.toFixed(1)} µs`,
        `${((100 * medianUs) / LIMIT_US).toFixed(0)} %`,
      ]),
    ),
    '',
  ].join('\n');
}
