import { systemClock } from '#src/runtime/clock.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { percentile } from './percentile.ts';
import { CASES, plan, type PlanningCase } from './planning-cases.ts';
import { flags as table, summary } from './planning-flags.ts';

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:planning', summary, table, start },
);

async function start(context: ProcessContext<typeof table>): Promise<void> {
  const { flags, stopping, stdout, stop } = context;
  stdout.write(`CPU of a plan on Node ${process.version}, the median of rounds; budget 50 µs\n`);
  for (const each of CASES) {
    const { kind } = await plan(each);
    if (kind !== 'create') throw new Error(`${each.name}: the plan is ${kind}`);
    const times: number[] = [];
    for (let round = 0; round <= flags.rounds && !stopping.aborted; round += 1) {
      const us = await cpuUsPerPlan(each, flags.plans);
      if (round > 0) times.push(us);
      // Lets the process handle signals between two rounds.
      await systemClock.sleep(0, stopping);
    }
    stdout.write(`${each.name.padEnd(28)}${percentile(times, 0.5).toFixed(1).padStart(8)} µs\n`);
  }
  stop(0);
}

/** User and system time of the process, including garbage collection and compilation. */
async function cpuUsPerPlan(testCase: PlanningCase, plans: number): Promise<number> {
  const before = process.cpuUsage();
  for (let i = 0; i < plans; i += 1) await plan(testCase);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / plans;
}
