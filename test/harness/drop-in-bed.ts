import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { leaseName } from '#src/election/lease.ts';
import { type ListedEntry, listJournal } from '#src/journal/list-journal.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { SampleDriver, SampleDriverOptions } from '../../sandbox/driver/server.ts';
import { type DriverNode, openDriverPlace } from './change-over/driver-place.ts';
import type { ChurnPlace } from './change-over/scenario.ts';
import { VolumeLedger } from './change-over/volume-ledger.ts';
import { startDropIn, type SutlerProcess } from './program.ts';
import { type Ended, runSutler } from './run-sutler.ts';
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

/** A driver, a class, and containers of sutler in the place of external-provisioner's. */
export class DropInBed implements ChurnPlace {
  readonly kube: ChurnPlace['kube'];
  readonly namespace: string;
  readonly className: string;
  readonly driverName: string;
  readonly ledger: VolumeLedger;
  readonly driver: SampleDriver;
  readonly #folder: string;
  /** With the rights of sutler. */
  readonly ownKubeconfig: string;
  readonly #closers: Closers;
  #started = 0;

  private constructor(
    parts: Pick<DropInBed, 'kube' | 'namespace' | 'className' | 'driverName' | 'ledger' | 'driver'>,
    own: { readonly folder: string; readonly kubeconfig: string; readonly closers: Closers },
  ) {
    this.kube = parts.kube;
    this.namespace = parts.namespace;
    this.className = parts.className;
    this.driverName = parts.driverName;
    this.ledger = parts.ledger;
    this.driver = parts.driver;
    this.#folder = own.folder;
    this.ownKubeconfig = own.kubeconfig;
    this.#closers = own.closers;
  }

  static async open(o: DropInOptions): Promise<DropInBed> {
    const { kubeconfig, namespace, driverDelayMs = 0 } = o;
    const { driverName = `drop-in-${Date.now().toString(36)}.csi.example` } = o;
    const closers = new Closers();
    const folder = await mkdtemp(join(tmpdir(), 'sutler-drop-in-'));
    closers.add('folder', () => rm(folder, { recursive: true, force: true }));
    const ledger = new VolumeLedger(() => false);
    const { driverNode: node, onCall } = o;
    const options = { name: driverName, delayMs: driverDelayMs, node, onCall };
    const place = { kubeconfig, folder, ledger, closers, ...options };
    const { driver, kube, className } = await openDriverPlace(place);
    const own = { folder, kubeconfig: o.ownKubeconfig ?? kubeconfig, closers };
    const parts = { kube, namespace, className, driverName, ledger, driver };
    return new DropInBed(parts, own);
  }

  handles(): readonly string[] {
    return this.driver.volumes().map(({ handle }) => handle);
  }

  /** Starts a container with upstream's arguments. Resolves when it listens.
   * @param env      beside PATH and TMPDIR
   * @param program  external-provisioner, in the place of sutler */
  async start(
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
    program?: string,
  ): Promise<SutlerProcess> {
    this.#started += 1;
    const dropIn = await startDropIn({
      args: [`--kubeconfig=${this.ownKubeconfig}`, ...args],
      socket: this.driver.socket,
      namespace: this.namespace,
      env: { TMPDIR: this.#folder, HOSTNAME: `container-${this.#started}`, ...env },
      program,
    });
    this.#closers.add('provisioner', () => dropIn.stop());
    return dropIn;
  }

  /** Runs a command in the container that was started last, as `kubectl exec` does.
   * @returns what it printed, and how it ended */
  exec(...args: readonly string[]): Promise<Ended> {
    return runSutler(args, { TMPDIR: this.#folder });
  }

  createClaim(
    name: string,
    annotations: Readonly<Record<string, string>> = {},
    storageClassName = this.className,
  ): Promise<Claim> {
    return this.kube.create<Claim>(claims, this.namespace, {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name, namespace: this.namespace, annotations },
      spec: {
        storageClassName,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  }

  readClaim(name: string): Promise<Claim | undefined> {
    return this.kube.get<Claim>(claims, { namespace: this.namespace, name });
  }

  async isBound(name: string): Promise<boolean> {
    return (await this.readClaim(name))?.status?.phase === 'Bound';
  }

  /** The claims that the journal has. */
  readJournal(): Promise<readonly ListedEntry[]> {
    const { driverName: driver, namespace } = this;
    return listJournal(this.kube, { driver, lease: leaseName(driver), namespace });
  }

  /** Waits until the driver is at work on one more volume. */
  async untilCreating(create: () => Promise<unknown>): Promise<void> {
    const calls = (): number => this.driver.counts.get('CreateVolume') ?? 0;
    const before = calls();
    await create();
    await until(() => calls() > before, 'the driver is called');
  }

  /** Ends everything.
   * @returns what went wrong */
  close(): Promise<readonly Error[]> {
    return this.#closers.close();
  }
}
