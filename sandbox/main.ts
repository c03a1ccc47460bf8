import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { claims, type Resource } from '#src/kube/resources.ts';
import { openRedisAccess, type RedisAccess } from '#src/redis/access.ts';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { type Invocation, type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { version } from '#src/runtime/version.ts';
import { takeDataFolder } from './data-folder.ts';
import { type Environment, startEnvironment } from './environment.ts';
import { createExample, type Example, readExamples } from './examples.ts';
import { flags, summary } from './flags.ts';
import { waitForNoLeftovers } from './leftovers.ts';
import { createNodes } from './nodes.ts';
import { Progress } from './progress.ts';
import { pods } from './resources.ts';
import { describeEnvironment, INTRODUCTION, shellSettings } from './texts.ts';
import { waitForRedis } from './wait-for-redis.ts';

/** The shipped command line, without the sandbox. */
const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));
const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
/** Far more than a handful of claims needs. */
const EXAMPLES_TIMEOUT_MS = 60_000;

type Context = ProcessContext<typeof flags>;

/** `npm start`: starts everything as child processes, provisions the examples, and prints what to
 * try next. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'sandbox', summary, table: flags, start });
}

async function start(context: Context): Promise<void> {
  const { flags, log, closers, stopping } = context;
  if (flags.driverConfig !== '')
    throw new UsageError(
      '--driver-config: the sandbox has one driver of its own; ' +
        'serve others with sutler all, which takes a kubeconfig',
    );
  const print = printer(context);
  const folder = flags.examples === '' ? EXAMPLES : resolve(flags.examples);
  const examples = await readExamples(folder);
  print(INTRODUCTION);
  const redisAccess = await openRedisAccess(context);
  const environment = await open(context, redisAccess);
  if (environment === undefined) return;
  const access = await loadClusterAccess({ kubeconfig: environment.kubeconfig, env: {} });
  // The screen shows what this process watches; log only its problems.
  const quiet = log.child({}, { level: 'warn' });
  const client = createKubeClient({ access, userAgent: `sutler-sandbox/${version}`, log: quiet });
  closers.add('API client', () => client.close());
  await createNodes(client, flags.topology);
  const progress = new Progress({ client, log: quiet, print });
  closers.add('watches', () => progress.stop());
  const run = { context, client, progress, examples, environment, redisAccess };
  const unready = await provisionExamples(run);
  if (flags.once) return finishOnce(run, unready);
  if (stopping.aborted) return;
  for (const each of unready) print(`  waiting for ${each}`);
  await printNext(run, folder);
}

/** Everything that a run over the examples needs. */
interface Run {
  readonly context: Context;
  readonly client: KubeClient;
  readonly progress: Progress;
  readonly examples: readonly Example[];
  readonly environment: Environment;
  readonly redisAccess: RedisAccess;
}

async function open(context: Context, access: RedisAccess): Promise<Environment | undefined> {
  const { flags, log, closers, stopping } = context;
  const dataDir = resolve(flags.dataDir);
  closers.add('data folder', await takeDataFolder(dataDir));
  // The path of a socket may have at most 107 bytes, and the data folder's path may be longer.
  const sockets = await mkdtemp(join(tmpdir(), 'sutler-'));
  closers.add('folder of sockets', () => rm(sockets, { recursive: true, force: true }));
  if (flags.redisUrl !== '') {
    const print = printer(context);
    await waitForRedis(flags.redisUrl, { access, print, stopping, clock: systemClock, log });
  }
  return startEnvironment({
    dataDir,
    sockets,
    apiPort: flags.apiPort,
    driverDelayMs: flags.driverDelayMs,
    topology: flags.topology,
    redisUrl: flags.redisUrl,
    sendsWebhooks: flags.eventSource !== 'watch',
    argv: context.argv,
    env: context.env,
    stopping,
    closers,
    log,
    onUsageError: (child, line) => {
      const logFile = join(logsIn(context), `${child}.log`);
      context.stderr.write(`${line || `sutler ${child} refuses its flags: see ${logFile}`}\n`);
      context.stop(2);
    },
  });
}

/** @returns the claims that did not become Bound and the pods that did not become Running */
async function provisionExamples(run: Run): Promise<readonly string[]> {
  const { context, client, progress, examples } = run;
  printer(context)('\nProvisioning the examples:');
  for (const example of examples) {
    progress.begin(example);
    await createExample(client, example);
  }
  return progress.waitUntilReady(signalWithin(context.stopping, EXAMPLES_TIMEOUT_MS));
}

/** Writes the file for a shell, and prints what runs and what to try. */
async function printNext({ context, examples, environment }: Run, folder: string): Promise<void> {
  const { flags } = context;
  const shellFile = join(resolve(flags.dataDir), 'shell');
  const settings = shellSettings(environment, { cli: CLI, isOwnRedis: flags.redisUrl === '' });
  await writeFile(shellFile, settings, { mode: 0o600 });
  const text = describeEnvironment(environment, {
    logsFolder: logsIn(context),
    shellFile,
    examplesFolder: relative('', folder),
    claim: examples.find(({ resource }) => resource === claims)?.name ?? '',
  });
  printer(context)(text);
}

/** `--once`: deletes the examples and exits.
 * @param unready  what did not become Bound or Running */
async function finishOnce(run: Run, unready: readonly string[]): Promise<void> {
  const { context } = run;
  const print = printer(context);
  const left = unready.length === 0 ? await deleteExamples(run) : unready;
  for (const line of left) print(`  left: ${line}`);
  const isClean = left.length === 0;
  print(
    isClean
      ? '\nDone: every claim was provisioned and deleted, and nothing is left.'
      : `\nFailed. The logs are in ${logsIn(context)}`,
  );
  context.stop(isClean ? 0 : 1);
}

/** @returns what is left after the deletion */
async function deleteExamples(run: Run): Promise<readonly string[]> {
  const { context, client, progress, examples, environment, redisAccess } = run;
  const print = printer(context);
  print('\nDeleting the examples:');
  const signal = signalWithin(context.stopping, EXAMPLES_TIMEOUT_MS);
  const startedMs = systemClock.nowMs();
  const remove = async (kind: Resource): Promise<void> => {
    for (const { resource, namespace = '', name } of examples)
      if (resource === kind) await client.delete(kind, { namespace, name });
  };
  // A claim stays while a pod uses it.
  await remove(pods);
  await remove(claims);
  const volumesLeft = await progress.waitUntilNoVolumes(signal);
  const options = {
    redisUrl: environment.redisUrl,
    redisAccess,
    driver: environment.socket,
    prefix: 'csi',
    clock: systemClock,
    log: context.log,
  };
  const othersLeft = await waitForNoLeftovers(options, signal);
  const left = [...volumesLeft.map((name) => `PersistentVolume ${name}`), ...othersLeft];
  if (left.length === 0)
    print(`  volumes and jobs gone after ${systemClock.nowMs() - startedMs} ms`);
  return left;
}

function logsIn({ flags }: Context): string {
  return join(resolve(flags.dataDir), 'logs');
}

function printer({ stdout }: Context): (text: string) => void {
  return (text) => void stdout.write(`${text}\n`);
}
