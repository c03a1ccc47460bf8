import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { messageOf } from '#src/runtime/error-message.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { type DropInBed, openDropInBed } from '../test/harness/drop-in-bed.ts';
import { type Cgroup, openCgroup } from '../test/harness/cgroup.ts';
import { podEnv } from '../test/harness/pod-env.ts';
import { type Program, startProgram } from '../test/harness/program.ts';
import { until } from '../test/harness/until.ts';
import { openControlPlane } from './control-plane.ts';
import { flags as table, summary } from './drop-in-flags.ts';
import { percentile } from './percentile.ts';
import { childrenOf, cpuMs, rssBytes } from './proc.ts';
import { splitArgs } from './split-args.ts';

const MiB = 1024 * 1024;
const CLI = fileURLToPath(import.meta.resolve('#src/cli.ts'));

/** How long the programs have nothing to do, to count what they use, and how long before that: Node
 * still compiles what it has run. */
const IDLE_MS = 20_000;
const SETTLE_MS = 40_000;

/** External-provisioner's limit of requests, 5 a second, out of the way. */
const TUNED = ['--kube-api-qps=1000', '--kube-api-burst=1000'];

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:drop-in', summary, table, start },
);

type Context = ProcessContext<typeof table>;

/** What one round measures, by the name of its row. */
type Round = Readonly<Record<string, number>>;

async function start(context: Context): Promise<void> {
  const { flags, env, stdout, closers, stopping } = context;
  const plane = await openControlPlane(env, true, flags.defaultLimit);
  closers.add('control plane', () => plane.close());
  const node = process.execPath;
  const sutler = [node, flags.program || CLI];
  const peers = { upstream: [flags.peer], 'upstream, tuned': [flags.peer, ...TUNED] };
  const contenders = { sutler, ...(flags.peer === '' ? {} : peers) };
  const rounds = new Map<string, Round[]>(Object.keys(contenders).map((name) => [name, []]));
  for (let round = 0; round < flags.rounds; round += 1)
    for (const [name, command] of Object.entries(contenders))
      if (!stopping.aborted)
        rounds.get(name)?.push(await measure(context, plane.kubeconfig, command));
  stdout.write(renderTable(rounds));
  context.stop(0);
}

async function measure(
  context: Context,
  kubeconfig: string,
  command: readonly string[],
): Promise<Round> {
  const { flags, stopping } = context;
  const bed = await openDropInBed({ kubeconfig, namespace: 'default' });
  const cgroup = await openCgroup(flags.cgroup, flags.memoryLimitMib);
  const folder = await mkdtemp(join(tmpdir(), 'sutler-bench-'));
  const { file, args, env } = await inCgroup(context, cgroup, {
    command: [...command, `--csi-address=${bed.driver.socket}`],
    kubeconfig,
    folder,
  });
  const first = `${bed.className}-first`;
  let program: Program | undefined;
  try {
    const waiting = await bed.createClaim(first);
    const startedMs = performance.now();
    program = startProgram(file, args, { cwd: process.cwd(), keptOutput: 8_000, env });
    await untilStored(bed, waiting);
    const firstPvMs = performance.now() - startedMs;
    await untilBound(bed, [first]);
    const pids = await treeOf(program.pid ?? 0);
    await systemClock.sleep(SETTLE_MS, stopping);
    const idleCpu = await sumOf(pids, cpuMs);
    await systemClock.sleep(IDLE_MS, stopping);
    const idle = (await sumOf(pids, cpuMs)) - idleCpu;
    const atRest = await cgroup.workingSetBytes();
    const single = await oneAtATime(bed, flags.single);
    const cpuBefore = await sumOf(pids, cpuMs);
    const burstMs = performance.now();
    const names = Array.from({ length: flags.claims }, (_, i) => `${bed.className}-burst-${i}`);
    await Promise.all(names.map((name) => bed.createClaim(name)));
    await untilBound(bed, names);
    const boundMs = performance.now() - burstMs;
    // Events are written a little later.
    await systemClock.sleep(2_000);
    const cpu = (await sumOf(pids, cpuMs)) - cpuBefore;
    const atWork = await cgroup.workingSetBytes();
    const all = [first, ...names, ...single.names];
    const deletingMs = performance.now();
    for (const name of all) await bed.kube.delete(claims, { namespace: 'default', name });
    await until(() => bed.handles().length === 0, 'all volumes are deleted', 600_000);
    return {
      'start to first PV, ms': firstPvMs,
      'one at a time, p50 to the PV, ms': percentile(single.ms, 0.5),
      'burst to the last Bound, s': boundMs / 1000,
      'deletion of all, s': (performance.now() - deletingMs) / 1000,
      'CPU a claim, ms': cpu / flags.claims,
      'idle CPU, thousandths of a core': (idle / IDLE_MS) * 1000,
      'working set at rest, MiB': atRest / MiB,
      'working set after the burst, MiB': atWork / MiB,
      'highest usage of the cgroup, MiB': (await cgroup.peakBytes()) / MiB,
      'RSS, MiB': (await sumOf(pids, rssBytes)) / MiB,
    };
  } catch (cause) {
    throw new Error(`${command[0]}: ${messageOf(cause)}\n${program?.output()}`, { cause });
  } finally {
    await program?.stop(30_000);
    await bed.close();
    await cgroup.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** How a contender is started: sutler as the image starts it, in a pod, where a kubeconfig does not
 * have it load 30 MiB more. */
async function inCgroup(
  { flags }: Context,
  cgroup: Cgroup,
  o: {
    readonly command: readonly string[];
    readonly kubeconfig: string;
    readonly folder: string;
  },
) {
  const [program = '', ...before] = o.command;
  const isSutler = program === process.execPath;
  const isInPod = isSutler && !flags.kubeconfig;
  const [file = '', ...args] = await cgroup.command(program, [
    ...before,
    ...(isInPod ? [] : [`--kubeconfig=${o.kubeconfig}`]),
    '--leader-election-namespace=default',
    ...splitArgs(flags.args),
  ]);
  const { folder } = o;
  const kubeconfig = isInPod ? o.kubeconfig : undefined;
  const env = isSutler ? await podEnv({ kubeconfig, folder }) : { PATH: process.env['PATH'] };
  return { file, args, env };
}

/** The process and its Redis, where it has one. */
async function treeOf(pid: number): Promise<readonly number[]> {
  return [pid, ...(await childrenOf(pid)).values()];
}

async function sumOf(
  pids: readonly number[],
  read: (pid: number) => Promise<number>,
): Promise<number> {
  const values = await Promise.all(pids.map(read));
  return values.reduce((a, b) => a + b, 0);
}

async function untilStored(bed: DropInBed, { metadata }: Claim): Promise<void> {
  const ref = { name: `pvc-${metadata.uid}` };
  const isStored = async () => (await bed.kube.get<Volume>(volumes, ref)) !== undefined;
  await until(isStored, `${metadata.name} has a PV`, 120_000);
}

async function untilBound(bed: DropInBed, names: readonly string[]): Promise<void> {
  for (const name of names) await until(() => bed.isBound(name), `${name} is Bound`, 600_000);
}

async function oneAtATime(bed: DropInBed, count: number) {
  const ms: number[] = [];
  const names = Array.from({ length: count }, (_, i) => `${bed.className}-single-${i}`);
  for (const name of names) {
    const startedMs = performance.now();
    await untilStored(bed, await bed.createClaim(name));
    ms.push(performance.now() - startedMs);
    await untilBound(bed, [name]);
  }
  return { names, ms };
}

function renderTable(rounds: ReadonlyMap<string, readonly Round[]>): string {
  const names = [...rounds.keys()];
  const [[first] = []] = rounds.values();
  const rows = Object.keys(first ?? {}).map((row) => {
    const medians = names.map((name) =>
      percentile(rounds.get(name)?.map((each) => each[row] ?? 0) ?? [], 0.5).toFixed(1),
    );
    return `| ${row} | ${medians.join(' | ')} |\n`;
  });
  return `| | ${names.join(' | ')} |\n|---|${names.map(() => '---|').join('')}\n${rows.join('')}`;
}
