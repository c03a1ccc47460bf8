import type { Lease, LeaseSpec } from '#src/kube/objects.ts';
import { claims, leases } from '#src/kube/resources.ts';
import { leaseName } from '#src/election/lease.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { type ChangeOverBed, openChangeOverBed } from '../test/harness/change-over/bed.ts';
import { until } from '../test/harness/until.ts';
import { openControlPlane } from './control-plane.ts';
import { flags as table, summary } from './hand-over-flags.ts';

/** How the only ingest ends before another provisioner takes the Lease, and how that one ends. */
const KINDS = [
  { ingest: 'stop', other: 'release' },
  { ingest: 'kill', other: 'release' },
  { ingest: 'stop', other: 'expire' },
] as const;
type Kind = (typeof KINDS)[number];

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:hand-over', summary, table, start },
);

type Context = ProcessContext<typeof table>;

/** Times in ms. */
interface HandOver {
  /** From the write of the Lease by another provisioner to the last call begun here; negative: none
   * was begun after it. */
  readonly toOther: number;
  /** From its release, or its last renewal, to the first call begun here. */
  readonly back: number;
}

async function start(context: Context): Promise<void> {
  const { flags, env, stdout, closers, stopping } = context;
  const plane = await openControlPlane(env, true);
  closers.add('control plane', () => plane.close());
  for (const kind of KINDS) {
    const rounds: HandOver[] = [];
    for (let round = 0; round < flags.rounds && !stopping.aborted; round += 1)
      rounds.push(await measure(context, plane.kubeconfig, kind));
    const show = (name: keyof HandOver): string => rounds.map((each) => each[name]).join(', ');
    stdout.write(
      `ingest: ${kind.ingest}, other: ${kind.other}: last call here ${show('toOther')} ms after ` +
        `the other's write; first call here ${show('back')} ms after its ${kind.other}\n`,
    );
  }
  context.stop(0);
}

async function measure({ flags }: Context, kubeconfig: string, kind: Kind): Promise<HandOver> {
  const { driverDelayMs, workerThreads } = flags;
  const bed = await openChangeOverBed({ kubeconfig, upstream: '', workerThreads, driverDelayMs });
  try {
    await bed.startJobs();
    const ingest = await bed.startIngest();
    await createClaims(bed, flags.claims);
    await until(() => bed.ledger.creations >= flags.claims / 10, 'some volumes');
    await ingest[kind.ingest]();
    const takenMs = await writeLease(bed, { holderIdentity: 'csi-provisioner-0' });
    await systemClock.sleep(2_000);
    const { last = 0 } = bed.ledger.timesOf('sutler') ?? {};
    const waiting = await bed.startIngest();
    await systemClock.sleep(2_000);
    bed.ledger.resetTimes();
    const release = { holderIdentity: '', leaseDurationSeconds: 1 };
    const endedMs = await writeLease(bed, kind.other === 'release' ? release : {});
    await until(() => bed.ledger.timesOf('sutler') !== undefined, 'a call after it');
    const { first = 0 } = bed.ledger.timesOf('sutler') ?? {};
    await waiting.stop();
    return { toOther: last - takenMs, back: first - endedMs };
  } finally {
    await bed.close();
  }
}

/** Writes the Lease as another provisioner does, with upstream's default duration.
 * @returns when */
async function writeLease(bed: ChangeOverBed, change: Partial<LeaseSpec>): Promise<number> {
  const ref = { namespace: 'default', name: leaseName(bed.driver) };
  for (;;) {
    const lease = await bed.kube.get<Lease>(leases, ref);
    const renewTime = new Date().toISOString().replace('Z', '000Z');
    const { leaseTransitions = 0 } = lease?.spec ?? {};
    const spec = {
      ...lease?.spec,
      leaseDurationSeconds: 15,
      renewTime,
      leaseTransitions: leaseTransitions + (change.holderIdentity ? 1 : 0),
      ...change,
    };
    try {
      await bed.kube.update<Lease>(leases, ref, { ...lease, spec });
      return Date.now();
    } catch {
      // An ingest wrote first.
      await systemClock.sleep(10);
    }
  }
}

async function createClaims({ kube, namespace, className }: ChangeOverBed, count: number) {
  const create = (i: number) =>
    kube.create(claims, namespace, {
      metadata: { name: `claim-${className}-${i}`, namespace },
      spec: {
        storageClassName: className,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  await Promise.all(Array.from({ length: count }, (_, i) => create(i)));
}
