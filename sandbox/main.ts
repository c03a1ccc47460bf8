import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/credentials.ts';
import { claims } from '#src/kube/resources.ts';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';
import { emptyDataFolder, openDataFolder } from '#src/runtime/data-folder.ts';
import { runProcess, type Invocation, type ProcessContext } from '#src/runtime/process.ts';
import { version } from '#src/runtime/version.ts';
import { createExample, readExamples, type Example } from './examples.ts';
import { withoutFlags } from '#src/runtime/flags.ts';
import { flags, sandboxOnlyFlags, summary } from './flags.ts';
import { watchJourneys, type Journey, type JourneyWatch } from './journey.ts';
import { leftovers } from './leftovers.ts';
import { redisReady } from './redis-ready.ts';
import { startWorld, type World } from './world.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
/** More than enough for a handful of claims; past it something is broken. */
const PATIENCE_MS = 60_000;

/** The sandbox: the parent of everything. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'sandbox', summary, table: flags, start });
}

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, log, closers } = p;
  const say = (line: string): unknown => p.stdout.write(`${line}\n`);
  const dataDir = resolve(f.dataDir);
  const examples = await readExamples(f.examples === '' ? EXAMPLES : resolve(f.examples));
  const folder = await openDataFolder('data-dir', dataDir, 'sandbox');
  closers.add('data folder', () => folder.close());
  await emptyDataFolder(folder);

  say(
    'sutler sandbox: a small Kubernetes API, a sample CSI driver and all processes of sutler, for trying and testing. No cluster is touched.',
  );
  if (f.redisUrl !== '')
    await redisReady(f.redisUrl, { say, stopping: p.stopping, clock: systemClock, log });
  const world = await startWorld({
    dataDir,
    sockets: folder.sockets,
    apiPort: f.apiPort,
    driverDelayMs: f.driverDelayMs,
    redisUrl: f.redisUrl,
    argv: withoutFlags(p.argv, sandboxOnlyFlags),
    node: process.execPath,
    env: p.env,
    stopping: p.stopping,
    closers,
    log,
    onUsageError: (child, line) => {
      p.stderr.write(
        `${line === '' ? `sutler ${child} refuses its flags: see ${join(dataDir, 'logs', `${child}.log`)}` : line}\n`,
      );
      p.stop(2);
    },
  });
  if (world === undefined) return;
  const access = await loadClusterAccess({ kubeconfig: world.kubeconfig, env: {} });
  // What this process watches is for the screen; its own comings and goings are not.
  const quiet = log.child({}, { level: 'warn' });
  const client = createKubeClient({ access, userAgent: `sutler-sandbox/${version}`, log: quiet });
  closers.add('API client', () => client.close());
  const watch = watchJourneys(client, quiet);
  closers.add('watches', () => watch.stop());

  say('\nProvisioning the claims of the examples:');
  const patience = signalWithin(p.stopping, PATIENCE_MS);
  const journeys = await provisionExamples(client, watch, examples, patience);
  for (const journey of journeys) say(`  ${describeJourney(journey)}`);
  const isBound = journeys.every(({ boundMs }) => boundMs !== undefined);
  if (!f.once) {
    if (!p.stopping.aborted) say(describeWorld(world, dataDir));
    return;
  }
  const left = isBound
    ? await deleteExamples({ client, watch, examples, world, p })
    : ['claims that are not Bound'];
  for (const line of left) say(`  left over: ${line}`);
  say(
    left.length === 0
      ? '\nAll claims were provisioned and deleted again; nothing is left over.'
      : `\nNot clean: see the logs in ${join(dataDir, 'logs')}`,
  );
  p.stop(left.length === 0 ? 0 : 1);
}

async function provisionExamples(
  client: KubeClient,
  watch: JourneyWatch,
  examples: readonly Example[],
  signal: AbortSignal,
): Promise<readonly Journey[]> {
  for (const example of examples) {
    if (example.resource === claims) watch.begin(`${example.namespace}/${example.name}`);
    await createExample(client, example);
  }
  return watch.bound(signal);
}

async function deleteExamples(o: {
  client: KubeClient;
  watch: JourneyWatch;
  examples: readonly Example[];
  world: World;
  p: ProcessContext<typeof flags>;
}): Promise<readonly string[]> {
  const { client, watch, examples, world, p } = o;
  p.stdout.write('\nDeleting them again:\n');
  const patience = signalWithin(p.stopping, PATIENCE_MS);
  const startedMs = systemClock.nowMs();
  for (const { resource, namespace, name } of examples) {
    if (resource === claims)
      await client.delete(resource, { name, ...(namespace === undefined ? {} : { namespace }) });
  }
  const volumesLeft = (await watch.emptied(patience)).map((name) => `PersistentVolume ${name}`);
  const rest = await leftovers(
    {
      redisUrl: world.redisUrl,
      gateway: world.facts['gateway'] ?? '',
      prefix: 'csi',
      clock: systemClock,
      log: p.log,
    },
    patience,
  );
  p.stdout.write(`  volumes, records and jobs gone after ${systemClock.nowMs() - startedMs} ms\n`);
  return [...volumesLeft, ...rest];
}

function describeJourney(journey: Journey): string {
  const ms = (value: number | undefined): string =>
    value === undefined ? 'not yet' : `${Math.round(value)} ms`;
  const steps = [
    `volume controller asks for it ${ms(journey.annotatedMs)}`,
    `PersistentVolume written ${ms(journey.writtenMs)}`,
    `Bound ${ms(journey.boundMs)}`,
  ];
  return `${journey.claim.padEnd(20)} ${steps.join('  →  ')}  ${journey.volume ?? ''}`;
}

function describeWorld({ facts, kubeconfig }: World, dataDir: string): string {
  const rows = Object.entries(facts).map(([fact, value]) => `  ${fact.padEnd(22)} ${value}`);
  return [
    '\nRunning:',
    ...rows,
    `  ${'kubeconfig'.padEnd(22)} ${kubeconfig}`,
    `  ${'logs'.padEnd(22)} ${join(dataDir, 'logs')}`,
    '\nTry next:',
    `  export KUBECONFIG=${kubeconfig}`,
    '  kubectl get pvc,pv,sc',
    '  kubectl describe pvc website',
    '  kubectl delete pvc website      # its volume goes with it',
    '  kubectl apply -f examples/2-claims.yaml',
    '\nCtrl-C ends all of it.',
  ].join('\n');
}
