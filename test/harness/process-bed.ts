import type { Claim, ClaimSpec } from '#src/kube/objects.ts';
import { processes } from '#src/processes.ts';
import type { Host } from '#src/runtime/process.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { ClusterBed, openParts } from './cluster-bed.ts';
import { startTestGateway } from './csi-gateway.ts';
import { type RedisUser, urlOf } from './redis-users.ts';
import { runSutler } from './run-sutler.ts';
import type { SandboxCluster } from './sandbox-cluster.ts';

/** Name of the sample driver. */
export const DRIVER = 'sample.csi.sutler.dev';

interface BedOptions {
  /** Of the redis-server. */
  readonly settings?: readonly string[];
  /** Of both processes; of two values of a flag the last one counts. */
  readonly flags?: readonly string[];
  /** How both reach the driver; absent: by the gateway of the bed's own driver. */
  readonly gatewayFlags?: readonly string[];
  readonly env?: Host['env'];
  readonly onCall?: NonNullable<SampleDriverOptions['onCall']>;
  /** Of the driver; absent: one without topology. */
  readonly pools?: NonNullable<SampleDriverOptions['pools']>;
  /** Absent: the sandbox's. */
  readonly openCluster?: () => Promise<SandboxCluster>;
}

type Gateway = Pick<Awaited<ReturnType<typeof startTestGateway>>, 'close'>;

/** A bed with a class, a sample driver and its gateway. */
export class ProcessBed extends ClusterBed {
  readonly driver: SampleDriver;
  readonly #startGateway: () => Promise<Gateway>;
  #gateway: Gateway | undefined;
  #serial = 0;

  private constructor(
    o: {
      readonly driver: SampleDriver;
      readonly startGateway: () => Promise<Gateway>;
    },
    ...args: ConstructorParameters<typeof ClusterBed>
  ) {
    super(...args);
    this.driver = o.driver;
    this.#startGateway = o.startGateway;
  }

  static async open(options: BedOptions = {}): Promise<ProcessBed> {
    const { settings, flags = [], gatewayFlags, env = {}, onCall, pools } = options;
    const parts = await openParts(settings, options.openCluster);
    const { closers, folder } = parts;
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      ...(onCall === undefined ? {} : { onCall }),
      ...(pools === undefined ? {} : { pools }),
    });
    closers.add('driver', () => driver.close());
    const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
    const startGateway = () => startTestGateway(folder, { listen, probeTimeoutMs: 5000 });
    const bed = new ProcessBed({ driver, startGateway }, parts, {
      flags: [...(gatewayFlags ?? [`--gateway=unix://${listen.path}`]), '--timeout=1s', ...flags],
      env,
    });
    closers.add('gateway', () => bed.stopGateway());
    await bed.startGateway();
    await bed.createClass('sample', { provisioner: DRIVER });
    return bed;
  }

  /** Runs a command of `sutler` as the operator's user, with those of the processes' flags that it
   * has.
   * @returns what it prints, also where it is refused */
  operate(command: string, ...args: readonly string[]): Promise<string> {
    return this.operateAs('operator', command, ...args);
  }

  /** The same, as in a container that has the URL of that user of Redis. */
  async operateAs(user: RedisUser, command: string, ...args: readonly string[]): Promise<string> {
    const { flags = {} } = processes[command] ?? {};
    const redis = `--redis-url=${urlOf(user, this.redis.url)}`;
    const own = this.argv.filter((flag) => (/^--([^=]+)/.exec(flag)?.[1] ?? '') in flags);
    const { out, err } = await runSutler([command, ...args, ...own, redis], this.env);
    return out + err;
  }

  async startGateway(): Promise<void> {
    this.#gateway = await this.#startGateway();
  }

  async stopGateway(): Promise<void> {
    await this.#gateway?.close();
    this.#gateway = undefined;
  }

  newClaim(storage = '1Mi', spec: Partial<ClaimSpec> = {}): Promise<Claim> {
    const resources = { requests: { storage } };
    const name = `claim-${(this.#serial += 1)}`;
    return this.createClaimOf(name, { storageClassName: 'sample', resources, ...spec });
  }
}
