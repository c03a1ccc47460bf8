import { existsSync } from 'node:fs';
import { access, constants, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '#src/runtime/flags.ts';
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { splitArgs } from '../../bench/split-args.ts';
import { type Program, startProgram } from '../harness/program.ts';
import { until } from '../harness/until.ts';
import { countStates, differences, readResults, type Results } from './compare.ts';
import { flags as table, summary } from './flags.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));
const SAMPLE_DRIVER_ARGS = [
  'sandbox-driver',
  '--csi-address={socket}',
  '--data-dir={folder}/volumes',
  '--mutable-parameters=iops',
];

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'test:sanity', summary, table, start },
);

type Context = ProcessContext<typeof table>;

async function start(context: Context): Promise<void> {
  const { flags, stdout } = context;
  await checkProgram('csi-sanity', flags.csiSanity);
  if (flags.driver !== '') await checkProgram('driver', flags.driver);
  const direct = await run(context, 'driver');
  stdout.write(`on the driver:        ${countStates(direct)}\n`);
  const through = await run(context, 'gateway');
  stdout.write(`through the gateway:  ${countStates(through)}\n`);
  for (const [title, state] of direct)
    if (state === 'failed') stdout.write(`fails on the driver:  ${title}\n`);
  const different = differences(direct, through);
  stdout.write(
    different.length === 0
      ? 'every spec ended the same way\n'
      : `${different.length} specs ended differently:\n${different.join('\n')}\n`,
  );
  context.stop(different.length === 0 ? 0 : 1);
}

async function checkProgram(flag: string, path: string): Promise<void> {
  if (path === '') throw new UsageError(`--${flag} is missing: name the program`);
  await access(path, constants.X_OK).catch((cause: unknown) => {
    throw new UsageError(`--${flag} ${path}: not an executable file`, { cause });
  });
}

/** One run of csi-sanity on a fresh driver, directly or through a gateway. */
async function run(
  { flags, log, closers, stopping }: Context,
  at: 'driver' | 'gateway',
): Promise<Results> {
  const folder = await mkdtemp(join(tmpdir(), 'sutler-sanity-'));
  const programs: Program[] = [];
  const end = async (): Promise<void> => {
    for (const program of programs.splice(0).toReversed()) await program.stop();
    await rm(folder, { recursive: true, force: true });
  };
  closers.add(`processes of the run on the ${at}`, end);
  const state = join(folder, 'driver');
  await mkdir(state);
  const driverSocket = join(folder, 'csi.sock');
  const fill = (text: string): string =>
    text.replaceAll('{socket}', driverSocket).replaceAll('{folder}', state);
  const begin = (file: string, args: readonly string[]): Program => {
    log.debug({ program: file, args }, 'starting');
    const program = startProgram(file, args);
    void program.exited.then(() => log.trace({ program: file }, program.output()));
    programs.push(program);
    return program;
  };
  if (flags.driver === '') begin(process.execPath, [CLI, ...SAMPLE_DRIVER_ARGS.map(fill)]);
  else begin(flags.driver, splitArgs(flags.driverArgs).map(fill));
  await untilListening(driverSocket, stopping);
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
    await untilListening(endpoint, stopping);
  }
  const report = join(folder, 'report.json');
  const sanity = begin(flags.csiSanity, [
    `--csi.endpoint=unix://${endpoint}`,
    `--csi.mountdir=${join(folder, 'mount')}`,
    `--csi.stagingdir=${join(folder, 'staging')}`,
    `--ginkgo.json-report=${report}`,
    // The same order in both runs, because a spec may depend on what earlier ones left behind.
    '--ginkgo.seed=1',
    ...splitArgs(flags.sanityArgs),
  ]);
  const timer = setTimeout(() => void sanity.stop(), flags.patienceMs);
  const code = await sanity.exited;
  clearTimeout(timer);
  const json = await readFile(report, 'utf8').catch((cause: unknown) => {
    throw new Error(
      `csi-sanity ended with ${code ?? 'a signal'} and wrote no report; -v 6 shows its output`,
      { cause },
    );
  });
  await end();
  return readResults(json);
}

/** Waits until a process listens on a socket. */
async function untilListening(socket: string, stopping: AbortSignal): Promise<void> {
  await until(() => stopping.aborted || existsSync(socket), `${socket} (-v 6 shows why)`, 15_000);
  if (stopping.aborted) throw new Error('interrupted');
}
