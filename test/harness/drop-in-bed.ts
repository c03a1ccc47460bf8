import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { leaseName } from '#src/election/lease.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { SampleDriverOptions } from '../../sandbox/driver/server.ts';
import { type DriverNode, openDriverPlace } from './change-over/driver-place.ts';
import { VolumeLedger } from './change-over/volume-ledger.ts';
import { startDropIn, type SutlerProcess } from './program.ts';
import type { RealControlPlane } from './real-control-plane.ts';
import { type Ended, runSutler } from './run-sutler.ts';
import { createSmallClaim, isClaimBound } from './small-claim.ts';
import { until } from './until.ts';

export interface DropInOptions {
  /** Of the administrator. */
  readonly kubeconfig: string;
  /** Of the provisioner; the administrator's unless given. */
  readonly ownKubeconfig?: string;
  /** Of the claims and the Lease. */
  readonly namespace: string;
  readonly driverName?: string;
  readonly driverDelayMs?: number;
  readonly driverNode?: DriverNode;
  /** Runs before each call of the driver. */
  readonly onCall?: SampleDriverOptions['onCall'];
}

export type DropInBed = Awaited<ReturnType<typeof openDropInBed>>;

/** Starts a driver and creates its class, for containers of sutler in the place of
 * external-provisioner's. */
export async function openDropInBed(o: DropInOptions) {
  const { kubeconfig, namespace, ownKubeconfig = kubeconfig, driverDelayMs = 0 } = o;
  const { driverName = `drop-in-${Date.now().toString(36)}.csi.example` } = o;
  const closers = new Closers();
  const folder = await mkdtemp(join(tmpdir(), 'sutler-drop-in-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const ledger = new VolumeLedger(() => false);
  const { driver, kube, className } = await openDriverPlace({
    kubeconfig,
    folder,
    ledger,
    closers,
    name: driverName,
    delayMs: driverDelayMs,
    node: o.driverNode,
    onCall: o.onCall,
  });
  let started = 0;
  return {
    kube,
    namespace,
    className,
    driverName,
    ledger,
    driver,
    handles: (): readonly string[] => driver.volumes().map(({ handle }) => handle),

    /** Starts a container with upstream's arguments. Resolves when it listens.
     * @param env      beside PATH and TMPDIR
     * @param program  external-provisioner, in the place of sutler */
    async start(
      args: readonly string[] = [],
      env: Readonly<Record<string, string>> = {},
      program?: string,
    ): Promise<SutlerProcess> {
      started += 1;
      const dropIn = await startDropIn({
        args: [`--kubeconfig=${ownKubeconfig}`, ...args],
        socket: driver.socket,
        namespace,
        env: { TMPDIR: folder, HOSTNAME: `container-${started}`, ...env },
        program,
      });
      closers.add('provisioner', () => dropIn.stop());
      return dropIn;
    },

    /** Runs a command in the container that was started last, as `kubectl exec` does. */
    exec: (...args: readonly string[]): Promise<Ended> => runSutler(args, { TMPDIR: folder }),

    createClaim: (
      name: string,
      annotations: Readonly<Record<string, string>> = {},
      storageClassName = className,
    ): Promise<Claim> =>
      createSmallClaim(kube, { name, namespace, annotations }, { storageClassName }),
    readClaim: (name: string) => kube.get<Claim>(claims, { namespace, name }),
    isBound: (name: string) => isClaimBound(kube, { namespace, name }),

    /** The claims that the journal has. */
    readJournal: () =>
      listJournal(kube, { driver: driverName, lease: leaseName(driverName), namespace }),

    /** Waits until the driver is at work on one more volume. */
    async untilCreating(create: () => Promise<unknown>): Promise<void> {
      const calls = (): number => driver.counts.get('CreateVolume') ?? 0;
      const before = calls();
      await create();
      await until(() => calls() > before, 'the driver is called');
    },

    /** Ends everything.
     * @returns what went wrong */
    close: (): Promise<readonly Error[]> => closers.close(),
  };
}

/** Runs steps on a bed of their own, in a namespace of its own. */
export async function onDropInBed<T>(
  { api, kubeconfig }: RealControlPlane,
  o: Partial<DropInOptions>,
  run: (bed: DropInBed) => Promise<T>,
): Promise<T> {
  const namespace = o.namespace ?? (await api.namespace());
  const driverName = `${namespace}.csi.example`;
  const bed = await openDropInBed({ kubeconfig, driverName, ...o, namespace });
  try {
    return await run(bed);
  } finally {
    assert.deepEqual(await bed.close(), []);
  }
}
