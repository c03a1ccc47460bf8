import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { access, constants, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '#src/runtime/flags.ts';
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { countStates, differences, readResults, type Results } from './compare.ts';
import { flags, summary } from './flags.ts';

const CLI = fileURLToPath(import.meta.resolve('#src/cli.ts'));
const SAMPLE_DRIVER_ARGS = [
  'sandbox-driver',
  '--csi-address={socket}',
  '--data-dir={folder}/volumes',
  '--mutable-parameters=iops',
];

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {}, retired: {} },
  { name: 'test:sanity', summary, table: flags, start },
);

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, stdout } = p;
  await mustRun('csi-sanity', f.csiSanity);
  if (f.driver !== '') await mustRun('driver', f.driver);
  const direct = await run(p, 'driver');
  stdout.write(`on the driver:        ${countStates(direct)}\n`);
  const through = await run(p, 'gateway');
  stdout.write(`through the gateway:  ${countStates(through)}\n`);
  for (const [title, state] of direct)
    if (state === 'failed') stdout.write(`fails on the driver:  ${title}\n`);
  const different = differences(direct, through);
  stdout.write(
    different.length === 0
      ? 'every spec ended alike\n'
      : `${different.length} specs ended differently:\n${different.join('\n')}\n`,
  );
  p.stop(different.length === 0 ? 0 : 1);
}

async function mustRun(flag: string, path: string): Promise<void> {
  if (path === '') throw new UsageError(`--${flag} is missing: name the program`);
  await access(path, constants.X_OK).catch((cause: unknown) => {
    throw new UsageError(`--${flag} ${path}: it can't be run`, { cause });
  });
}

/** One run of csi-sanity on a fresh driver, directly or with a gateway before it. */
async function run(
  { flags: f, log, closers, stopping }: ProcessContext<typeof flags>,
  at: 'driver' | 'gateway',
): Promise<Results> {
  const folder = await mkdtemp(join(tmpdir(), 'sutler-sanity-'));
  const children: ChildProcess[] = [];
  const end = async (): Promise<void> => {
    for (const child of children.splice(0).toReversed()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
    }
    await rm(folder, { recursive: true, force: true });
  };
  closers.add(`what the run on the ${at} started`, end);
  const state = join(folder, 'driver');
  await mkdir(state);
  const driverSocket = join(folder, 'csi.sock');
  const fill = (text: string): string =>
    text.replaceAll('{socket}', driverSocket).replaceAll('{folder}', state);
  const begin = (program: string, args: readonly string[]): ChildProcess => {
    log.debug({ program, args }, 'starting');
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (text: Buffer) => log.trace({ program }, text.toString().trimEnd()));
    children.push(child);
    return child;
  };
  if (f.driver === '') begin(process.execPath, [CLI, ...SAMPLE_DRIVER_ARGS.map(fill)]);
  else begin(f.driver, words(f.driverArgs).map(fill));
  await answers(driverSocket, stopping);
  let endpoint = driverSocket;
  if (at === 'gateway') {
    endpoint = join(folder, 'gateway.sock');
    begin(process.execPath, [
      CLI,
      'csi-gateway',
      `--csi-address=${driverSocket}`,
      `--listen=unix://${endpoint}`,
      '--allow-all',
    ]);
    await answers(endpoint, stopping);
  }
  const report = join(folder, 'report.json');
  const sanity = begin(f.csiSanity, [
    `--csi.endpoint=unix://${endpoint}`,
    `--csi.mountdir=${join(folder, 'mount')}`,
    `--csi.stagingdir=${join(folder, 'staging')}`,
    `--ginkgo.json-report=${report}`,
    // The same order both times, so that state left behind by one spec meets the same next one.
    '--ginkgo.seed=1',
    ...words(f.sanityArgs),
  ]);
  const timer = setTimeout(() => sanity.kill('SIGTERM'), f.patienceMs);
  const [code] = (await once(sanity, 'exit')) as [number | null];
  clearTimeout(timer);
  const json = await readFile(report, 'utf8').catch((cause: unknown) => {
    throw new Error(
      `csi-sanity ended with ${code ?? 'a signal'} and wrote no report; -v 6 shows what it said`,
      { cause },
    );
  });
  await end();
  return readResults(json);
}

function words(text: string): readonly string[] {
  return text.split(' ').filter((word) => word !== '');
}

/** Waits until a process answers on a socket. */
async function answers(socket: string, stopping: AbortSignal): Promise<void> {
  const deadlineMs = Date.now() + 15_000;
  while (!stopping.aborted) {
    const open = await new Promise<boolean>((resolve) => {
      const probe = connect(socket);
      probe.once('connect', () => resolve(true)).once('error', () => resolve(false));
      probe.once('connect', () => probe.destroy());
    });
    if (open) return;
    if (Date.now() > deadlineMs)
      throw new Error(`nothing answers on ${socket} after 15 s; -v 6 shows what was said there`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('interrupted');
}
