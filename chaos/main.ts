import { setMaxListeners } from 'node:events';
import { VolumeStore } from '../sandbox/driver/volume-store.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { readCallLog } from './call-log.ts';
import { inject, type InjectedFault } from './faults.ts';
import { flags, summary } from './flags.ts';
import { judge, type Evidence } from './judge.ts';
import { isPassed, toJson, toReport, toText } from './report.ts';
import { faultKinds, planFaults, type Fault, type FaultKind } from './schedule.ts';
import { waitUntilIdle } from './wait-until-idle.ts';
import { NAMESPACE, REPLICAS, scaledTiming, startTestbed, type Testbed } from './testbed.ts';
import { startWorkload } from './workload.ts';

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {}, retired: {} },
  { name: 'chaos', summary, table: flags, start },
);

type Context = ProcessContext<typeof flags>;

async function start(p: Context): Promise<void> {
  try {
    await chaos(p);
  } catch (error) {
    // After Ctrl-C, errors are expected.
    if (!p.stopping.aborted) throw error;
  }
}

async function chaos(p: Context): Promise<void> {
  const { flags: f, log, closers } = p;
  const timing = scaledTiming(f.timeoutMs, f.lockDurationMs);
  const runMs = f.minutes * 60_000;
  const faults = planFaults({
    seed: f.seed,
    kinds: chosenKinds(p, runMs),
    runMs,
    gapMs: f.faultGapMs,
    replicas: REPLICAS,
    timing,
  });
  const backend =
    f.backend === 'real' || (f.backend === 'auto' && (p.env['KUBEBUILDER_ASSETS'] ?? '') !== '')
      ? 'real'
      : 'sandbox';
  const finalizer = f.claimFinalizer ? ['--claim-finalizer'] : [];
  const words = (text: string): readonly string[] => text.split(' ').filter((word) => word !== '');
  const testbed = await startTestbed({
    backend,
    seed: f.seed,
    timing,
    leaky: f.leaky,
    capricious: f.capricious,
    ingestArgs: [...finalizer, ...words(f.ingestArgs)],
    jobsArgs: [...finalizer, ...words(f.jobsArgs)],
    dataDir: f.dataDir,
    env: p.env,
    node: process.execPath,
    log,
    closers,
  });
  // A frozen process does not notice that its parent has exited.
  process.once('exit', () => testbed.killNow());
  const workload = await startWorkload({
    client: testbed.client,
    driver: testbed.driverName,
    namespace: NAMESPACE,
    seed: f.seed,
    perSecond: f.claimsPerSecond,
    log: log.child({}, { level: 'warn' }),
  });
  closers.add('watches', () => workload.stop());

  log.info(
    { seed: f.seed, backend, faults: faults.length, dir: testbed.dir },
    'creating claims and injecting faults',
  );
  const over = deadline(p, runMs);
  const [injected] = await Promise.all([injectAll(p, testbed, faults), workload.run(over)]);
  p.stopping.throwIfAborted();
  log.info('no more faults; waiting until all work is finished');
  const waitStartMs = systemClock.nowMs();
  const unfinished = await waitUntilIdle(testbed, workload, deadline(p, f.patienceMs));
  p.stopping.throwIfAborted();

  const evidence: Evidence = {
    calls: readCallLog(testbed.callLog),
    driverVolumes: new VolumeStore(testbed.volumesDir).list(),
    volumes: [...workload.volumes.values()],
    claims: workload.claims,
  };
  const report = toReport({
    settings: {
      seed: f.seed,
      minutes: f.minutes,
      backend,
      'claims-per-second': f.claimsPerSecond,
      ...(f.leaky ? { leaky: true } : {}),
    },
    evidence,
    verdict: judge(evidence),
    faults: injected,
    progressMs: workload.progressMs,
    idleAfterMs: systemClock.nowMs() - waitStartMs,
    unfinished,
    troubles: testbed.troubles,
    dir: testbed.dir,
  });
  const passed = isPassed(report);
  if (!passed) testbed.keep();
  p.stdout.write(f.json ? `${toJson(report)}\n` : toText(report));
  p.stop(passed ? 0 : 1);
}

/** Aborts after that time or when the command is stopped. Not AbortSignal.any with
 * AbortSignal.timeout: Node 20 collects the latter as garbage, and it never fires. */
function deadline({ stopping, closers }: Context, ms: number): AbortSignal {
  const over = new AbortController();
  // Every living claim adds a listener.
  setMaxListeners(0, over.signal);
  const timer = setTimeout(() => over.abort(), ms);
  closers.add('timer', () => clearTimeout(timer));
  stopping.addEventListener('abort', () => over.abort(), { once: true });
  return over.signal;
}

/** The chosen kinds, or all kinds that the settings can survive and the run is long enough for. */
function chosenKinds({ flags: f }: Context, runMs: number): readonly FaultKind[] {
  const all = Object.keys(faultKinds) as FaultKind[];
  if (f.faults === '')
    return all.filter(
      (kind) =>
        (kind !== 'flush-redis' || f.claimFinalizer) &&
        (kind !== 'freeze-jobs-past-lock' || runMs > 3 * f.lockDurationMs),
    );
  return f.faults.split(',').map((text) => {
    const kind = all.find((each) => each === text.trim());
    if (kind === undefined)
      throw new UsageError(`--faults: there is no "${text}"; choose from ${all.join(', ')}`);
    return kind;
  });
}

async function injectAll(
  { log, stopping }: Context,
  testbed: Testbed,
  faults: readonly Fault[],
): Promise<readonly InjectedFault[]> {
  const beganMs = systemClock.nowMs();
  const running: Promise<InjectedFault>[] = [];
  for (const fault of faults) {
    await systemClock.sleep(beganMs + fault.atMs - systemClock.nowMs(), stopping);
    if (stopping.aborted) break;
    log.info({ fault: fault.kind, forMs: fault.forMs }, faultKinds[fault.kind]);
    const injected = inject(testbed, fault, stopping).then((done) => {
      log.info({ fault: fault.kind, victim: done.victim }, 'undone');
      return done;
    });
    // Awaited below; until then a failure must not count as unhandled.
    injected.catch(() => undefined);
    running.push(injected);
  }
  return Promise.all(running);
}
