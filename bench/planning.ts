import { systemClock } from '#src/runtime/clock.ts';
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { percentile } from './percentile.ts';
import { CASES, plan, type PlanningCase } from './planning-cases.ts';
import { flags, summary } from './planning-flags.ts';

/** CPU time that one plan may take. */
const LIMIT_US = 50;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {}, retired: {} },
  { name: 'bench:planning', summary, table: flags, start },
);

interface Result {
  readonly name: string;
  /** CPU time per plan: of the round in the middle, and of the worst. */
  readonly medianUs: number;
  readonly worstUs: number;
}

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { plans, rounds, json } = p.flags;
  const results: Result[] = [];
  for (const one of CASES) {
    const times: number[] = [];
    for (let round = 0; round <= rounds && !p.stopping.aborted; round += 1) {
      const us = cpuUsPerPlan(one, plans);
      if (round > 0) times.push(us);
      // A signal is heard between two rounds.
      await systemClock.sleep(0, p.stopping);
    }
    results.push({
      name: one.name,
      medianUs: percentile(times, 0.5),
      worstUs: percentile(times, 1),
    });
  }
  p.stdout.write(
    json
      ? `${JSON.stringify({ node: process.version, limitUs: LIMIT_US, results })}\n`
      : toText(results),
  );
  p.stop(0);
}

/** User and system time of the process, its garbage collection and its compiler included. */
function cpuUsPerPlan(one: PlanningCase, plans: number): number {
  const before = process.cpuUsage();
  for (let i = 0; i < plans; i += 1) plan(one);
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
