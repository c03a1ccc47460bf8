import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { percentile } from './percentile.ts';

/** A step that a process logged with -v=6, in ms of Unix time. */
interface Step {
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
}

/** One claim that was created while no other was under way, in ms of Unix time. */
export interface TracedClaim {
  /** The API server answered the create. */
  readonly answeredMs: number;
  /** A watch of the bench showed the PV. */
  readonly provisionedMs: number;
}

/** How long each step of a claim's life took. */
export interface StepTime {
  readonly name: string;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** The steps of a creation, in their order, as ingest and jobs name them in their logs. */
const STEPS = ['kube.get', 'csi.createVolume', 'kube.create'];

/** How long before the answer to the first create ingest may have had its event. */
const START_MS = 20;

/** Reads the logs of ingest and jobs, and assigns their steps to claims by time.
 * @param logsDir with ingest.log and jobs.log in JSON */
export async function readStepTimes(
  logsDir: string,
  claims: readonly TracedClaim[],
): Promise<readonly StepTime[]> {
  const ingest = await readSteps(join(logsDir, 'ingest.log'));
  const jobs = await readSteps(join(logsDir, 'jobs.log'));
  const byName = new Map<string, number[]>();
  const add = (name: string, ms: number): void => {
    const times = byName.get(name) ?? [];
    times.push(ms);
    byName.set(name, times);
  };
  let previousMs = -Infinity;
  for (const claim of claims) {
    // A claim is created when the watch has shown the PV of the one before.
    const afterMs = previousMs === -Infinity ? claim.answeredMs - START_MS : previousMs;
    previousMs = claim.provisionedMs;
    const enqueued = ingest.find(({ name, startMs }) => name === 'enqueue' && startMs > afterMs);
    const run = jobs.find(
      ({ name, startMs }) => name === 'run' && startMs > (enqueued?.startMs ?? Infinity),
    );
    if (enqueued === undefined || run === undefined) continue;
    add('answer to the create → ingest has the event', enqueued.startMs - claim.answeredMs);
    add('ingest has the event → Redis has the job', enqueued.endMs - enqueued.startMs);
    add('Redis has the job → the run begins', run.startMs - enqueued.endMs);
    let lastMs = run.startMs;
    for (const name of STEPS) {
      const step = jobs.find((s) => s.name === name && s.startMs >= run.startMs);
      if (step === undefined) continue;
      add(`own work before ${name}`, step.startMs - lastMs);
      add(name, step.endMs - step.startMs);
      lastMs = step.endMs;
    }
    add('all: answer to the create → a watch shows the PV', claim.provisionedMs - claim.answeredMs);
  }
  return [...byName].map(([name, times]) => ({
    name,
    p50Ms: percentile(times, 0.5),
    p99Ms: percentile(times, 0.99),
  }));
}

async function readSteps(file: string): Promise<readonly Step[]> {
  const text = await readFile(file, 'utf8');
  return text.split('\n').flatMap((line) => {
    if (!line.includes('"step"')) return [];
    const { step, atMs, tookMs } = JSON.parse(line) as {
      readonly step: string;
      readonly atMs: number;
      readonly tookMs: number;
    };
    return [{ name: step, startMs: atMs, endMs: atMs + tookMs }];
  });
}
