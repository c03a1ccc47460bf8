import { setMaxListeners } from 'node:events';
import { splitArgs } from '../bench/split-args.ts';
import { VolumeStore } from '../sandbox/driver/volume-store.ts';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { readCallLog } from './call-log.ts';
import { inject, type InjectedFault } from './faults.ts';
import { flags as table, summary } from './flags.ts';
import { type Evidence, judge } from './judge.ts';
import { isPassed, toJson, toReport, toText } from './report.ts';
import {
  type Fault,
  type FaultKind,
  faultKinds,
  type Form,
  kindsOf,
  planFaults,
} from './schedule.ts';
import { waitUntilIdle } from './wait-until-idle.ts';
import { NAMESPACE, REPLICAS, scaledTiming, startTestbed, type Testbed } from './testbed.ts';
import { startWorkload } from './workload.ts';

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'chaos', summary, table, start },
);

type Context = ProcessContext<typeof table>;

async function start(context: Context): Promise<void> {
  try {
    await chaos(context);
  } catch (error) {
    // After Ctrl-C, errors are expected.
    if (!context.stopping.aborted) throw error;
  }
}

async function chaos(context: Context): Promise<void> {
  const { flags, log, closers, stopping } = context;
  const timing = scaledTiming(flags);
  const form = flags.form as Form;
  if (flags.leaky && form === 'drop-in')
    throw new UsageError('--leaky: only with --form=distributed');
  const runMs = flags.minutes * 60_000;
  const faults = planFaults({
    seed: flags.seed,
    kinds: chosenKinds(context, form, runMs),
    runMs,
    gapMs: flags.faultGapMs,
    replicas: REPLICAS,
    timing,
  });
  const backend =
    flags.backend === 'real' ||
    (flags.backend === 'auto' && (context.env['KUBEBUILDER_ASSETS'] ?? '') !== '')
      ? 'real'
      : 'sandbox';
  const testbed = await startTestbed({
    backend,
    form,
    seed: flags.seed,
    timing,
    leaky: flags.leaky,
    capricious: flags.capricious,
    slowShare: flags.slowShare,
    ingestArgs: splitArgs(flags.ingestArgs),
    jobsArgs: splitArgs(flags.jobsArgs),
    dataDir: flags.dataDir,
    env: context.env,
    node: process.execPath,
    log,
    closers,
  });
  // A frozen process would survive: it does not notice that its parent has exited.
  process.once('exit', () => testbed.killNow());
  const workload = await startWorkload({
    client: testbed.client,
    driver: testbed.driverName,
    namespace: NAMESPACE,
    seed: flags.seed,
    perSecond: flags.claimsPerSecond,
    log: log.child({}, { level: 'warn' }),
  });
  closers.add('watches', () => workload.stop());

  log.info(
    { seed: flags.seed, backend, form, faults: faults.length, dir: testbed.dir },
    'creating claims and injecting faults',
  );
  const over = deadline(context, runMs);
  const [injected] = await Promise.all([injectAll(context, testbed, faults), workload.run(over)]);
  stopping.throwIfAborted();
  log.info('no more faults; waiting until all work is finished');
  const waitStartMs = systemClock.nowMs();
  const unfinished = await waitUntilIdle(testbed, workload, deadline(context, flags.patienceMs));
  stopping.throwIfAborted();

  const evidence: Evidence = {
    calls: readCallLog(testbed.callLog),
    driverVolumes: new VolumeStore(testbed.volumesDir).list(),
    volumes: [...workload.volumes.values()],
    claims: workload.claims,
  };
  const report = toReport({
    settings: {
      seed: flags.seed,
      minutes: flags.minutes,
      backend,
      form,
      'claims-per-second': flags.claimsPerSecond,
      ...(flags.leaky ? { leaky: true } : {}),
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
  context.stdout.write(flags.json ? `${toJson(report)}\n` : toText(report));
  context.stop(passed ? 0 : 1);
}

/** A signal that aborts after that time or when the command is stopped. */
function deadline({ stopping }: Context, ms: number): AbortSignal {
  const signal = signalWithin(stopping, ms);
  // Each claim that waits for its deletion adds a listener.
  setMaxListeners(0, signal);
  return signal;
}

/** The kinds of --faults. By default, all kinds that the form can have and that the run is long
 * enough for. */
function chosenKinds({ flags }: Context, form: Form, runMs: number): readonly FaultKind[] {
  const all = kindsOf(form);
  if (flags.faults === '')
    return all.filter(
      (kind) => kind !== 'freeze-jobs-past-lock' || runMs > 3 * flags.lockDurationMs,
    );
  return flags.faults.split(',').map((text) => {
    const kind = all.find((each) => each === text.trim());
    if (kind === undefined)
      throw new UsageError(`--faults: unknown kind "${text}"; choose from ${all.join(', ')}`);
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
    // Awaited below; prevents an unhandled rejection until then.
    injected.catch(() => undefined);
    running.push(injected);
  }
  return Promise.all(running);
}
