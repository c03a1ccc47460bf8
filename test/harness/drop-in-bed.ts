import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { leaseName } from '#src/election/lease.ts';
import { type ListedEntry, listJournal } from '#src/journal/list-journal.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { SampleDriver, SampleDriverOptions } from '../../sandbox/driver/server.ts';
import { type DriverNode, openDriverPlace } from './change-over/driver-place.ts';
import type { ChurnPlace, Startable } from './change-over/scenario.ts';
import { VolumeLedger } from './change-over/volume-ledger.ts';
import { freePort } from './free-port.ts';
import { type Ended, runSutler } from './run-sutler.ts';
import { until } from './until.ts';

const CLI = fileURLToPath(import.meta.resolve('#src/cli.ts'));

/** sutler in the place of external-provisioner: one process, without a subcommand. Or
 * external-provisioner itself. */
export interface DropIn extends Startable {
  readonly pid: number;
  /** Of health and metrics. */
  readonly url: string;
  /** Everything that it has logged. */
  output(): string;
  /** Resolves with the exit status, whatever ends the process. */
  readonly exited: Promise<number | null>;
}

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
  ): Promise<DropIn> {
    this.#started += 1;
    const dropIn = await startDropIn({
      args: [`--kubeconfig=${this.ownKubeconfig}`, ...args],
      socket: this.driver.socket,
      namespace: this.namespace,
      env: { TMPDIR: this.#folder, HOSTNAME: `container-${this.#started}`, ...env },
      program,
    });
    this.#closers.add('provisioner', dropIn.stop);
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

/** Starts a container with upstream's arguments. Resolves when it listens.
 * @param o.env      beside PATH
 * @param o.program  external-provisioner, in the place of sutler */
export async function startDropIn(o: {
  readonly args: readonly string[];
  readonly socket: string;
  /** Of the Lease. */
  readonly namespace: string;
  readonly env: Readonly<Record<string, string>>;
  readonly program?: string | undefined;
}): Promise<DropIn> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const [file, ...first] =
    o.program === undefined ? [process.execPath, '--enable-source-maps', CLI] : [o.program];
  const child = spawn(
    file,
    [
      ...first,
      `--csi-address=${o.socket}`,
      `--http-endpoint=127.0.0.1:${port}`,
      `--leader-election-namespace=${o.namespace}`,
      ...o.args,
    ],
    { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], env: { PATH: process.env['PATH'], ...o.env } },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  const exited = once(child, 'close').then(([code]) => {
    process.removeListener('exit', killNow);
    return code as number | null;
  });
  const end = async (signal: 'SIGTERM' | 'SIGKILL'): Promise<void> => {
    child.kill(signal);
    await exited;
  };
  const failed = exited.then(() =>
    Promise.reject(new Error(`${o.program ?? 'sutler'} ended: ${output}`)),
  );
  failed.catch(() => undefined);
  // external-provisioner sends no message when it has started.
  const answers = () => fetch(url).then(Boolean, () => false);
  const started = o.program === undefined ? once(child, 'message') : until(answers, 'it listens');
  await Promise.race([started, failed]);
  return {
    pid: child.pid ?? 0,
    url,
    output: () => output,
    exited,
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
  };
}
