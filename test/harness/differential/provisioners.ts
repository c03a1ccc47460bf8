import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Child, startChild } from '../../../sandbox/children.ts';
import { startProgram } from '../program.ts';
import { startRedisServer } from '../redis-server.ts';

/** A running provisioner. */
export interface Provisioner {
  /** The end of its output. */
  output(): string;
  stop(): Promise<void>;
}

export interface ProvisionerOptions {
  readonly kubeconfig: string;
  /** Of the driver; for a driver on each node, of the first one. */
  readonly socket: string;
  /** The nodes with a driver of their own. */
  readonly nodes?: readonly { readonly name: string; readonly socket: string }[];
  /** Variables of its environment. */
  readonly env: Readonly<Record<string, string>>;
  /** For its files. */
  readonly folder: string;
  /** For its Lease. */
  readonly namespace: string;
  /** For both provisioners, in upstream's spelling. */
  readonly flags: readonly string[];
}

const CLI = fileURLToPath(new URL('../../../../dist/cli.js', import.meta.url));
const READY_WITHIN_MS = 90_000;
const STOP_GRACE_MS = 30_000;
const KEPT_OUTPUT = 200_000;

/** Starts external-provisioner, one process for each node if the driver runs on nodes. It does not
 * report when it is ready; the first claim shows that.
 * @param program path of its binary */
export function startUpstream(program: string, options: ProvisionerOptions): Promise<Provisioner> {
  const { kubeconfig, socket, nodes = [{ name: undefined, socket }], folder, flags } = options;
  const all = nodes.map((node) =>
    startProgram(
      program,
      [`--kubeconfig=${kubeconfig}`, `--csi-address=${node.socket}`, '-v=5', ...flags],
      {
        cwd: folder,
        keptOutput: KEPT_OUTPUT,
        // Without KUBECONFIG, which would replace the flag.
        env: {
          PATH: process.env['PATH'],
          ...options.env,
          ...(node.name === undefined ? {} : { NODE_NAME: node.name }),
        },
      },
    ),
  );
  return Promise.resolve({
    output: () => all.map((running) => running.output()).join('\n'),
    stop: async () => {
      await Promise.all(all.map((running) => running.stop(STOP_GRACE_MS)));
    },
  });
}

/** Starts sutler in the place of external-provisioner, one process for each node if the driver runs
 * on nodes, and waits until it is ready. */
export async function startSutler(options: ProvisionerOptions): Promise<Provisioner> {
  const closers = new Closers();
  const redis = await startRedisServer({ dataDir: join(options.folder, 'redis') });
  closers.add('Redis', () => redis.close());
  let output = '';
  const run = (name: string, args: readonly string[]): Child => {
    const env = {
      PATH: process.env['PATH'],
      HOME: options.folder,
      ...(options.nodes === undefined ? { REDIS_URL: redis.url } : { NODE_NAME: name }),
      ...options.env,
    };
    const child = startChild(
      {
        name,
        command: [process.execPath, '--enable-source-maps', CLI, ...args],
        env,
        output: (text) => (output = (output + text).slice(-KEPT_OUTPUT)),
      },
      { log: silentLog, onUsageError: () => undefined },
    );
    closers.add(name, () => child.stop(STOP_GRACE_MS));
    return child;
  };
  const plan = options.nodes === undefined ? centralProcess(options) : processOfEachNode(options);
  const children = Object.entries(plan).map(([name, args]) => run(name, args));
  const stop = async (): Promise<void> => {
    await closers.close();
  };
  const timeout = new AbortController();
  const tooLate = delay(READY_WITHIN_MS, undefined, { signal: timeout.signal }).then(
    () => Promise.reject(new Error(`not ready after ${READY_WITHIN_MS} ms`)),
    () => undefined,
  );
  try {
    await Promise.race([Promise.all(children.map((child) => child.announced)), tooLate]);
  } catch (cause) {
    await stop();
    throw new Error(`sutler did not start:\n${output}`, { cause });
  } finally {
    timeout.abort();
  }
  return { output: () => output, stop };
}

type ProcessPlan = Readonly<Record<string, readonly string[]>>;

/** By the names of the nodes. */
function processOfEachNode(options: ProvisionerOptions): ProcessPlan {
  const { nodes = [] } = options;
  return Object.fromEntries(
    nodes.map(({ name, socket }) => [
      name,
      ['all', ...commonFlags(options), `--csi-address=unix://${socket}`],
    ]),
  );
}

function centralProcess(options: ProvisionerOptions): ProcessPlan {
  return {
    all: ['all', ...commonFlags(options), `--csi-address=unix://${options.socket}`],
  };
}

function commonFlags(options: ProvisionerOptions): readonly string[] {
  return [
    `--kubeconfig=${options.kubeconfig}`,
    `--leader-election-namespace=${options.namespace}`,
    // After a call of unknown end a deletion waits that long (docs/parity.md).
    '--settle-time=1s',
    '-v=4',
    ...options.flags,
  ];
}
