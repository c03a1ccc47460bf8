import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startRedisServer } from '#src/redis/server.ts';
import { startChild } from '#src/runtime/children.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startProgram } from '../program.ts';

/** A running provisioner. */
export interface Provisioner {
  /** The end of its output. */
  output(): string;
  stop(): Promise<void>;
}

export interface ProvisionerOptions {
  readonly kubeconfig: string;
  readonly socket: string;
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

/** Starts external-provisioner. It does not report when it is ready; the first claim shows that.
 * @param program path of its binary */
export function startUpstream(program: string, options: ProvisionerOptions): Promise<Provisioner> {
  const args = [
    `--kubeconfig=${options.kubeconfig}`,
    `--csi-address=${options.socket}`,
    '-v=5',
    ...options.flags,
  ];
  // Without KUBECONFIG, which would replace the flag.
  const env = { PATH: process.env['PATH'] };
  const running = startProgram(program, args, {
    cwd: options.folder,
    keptOutput: KEPT_OUTPUT,
    env,
  });
  return Promise.resolve({ output: running.output, stop: () => running.stop(STOP_GRACE_MS) });
}

/** Starts all processes of sutler with a Redis of their own, and waits until they are ready. */
export async function startSutler(options: ProvisionerOptions): Promise<Provisioner> {
  const redis = await startRedisServer({ dataDir: join(options.folder, 'redis'), log: silentLog });
  let output = '';
  const child = startChild(
    {
      name: 'all',
      command: [
        process.execPath,
        '--enable-source-maps',
        CLI,
        'all',
        `--kubeconfig=${options.kubeconfig}`,
        `--csi-address=unix://${options.socket}`,
        `--data-dir=${join(options.folder, 'all')}`,
        `--leader-election-namespace=${options.namespace}`,
        '--dashboard-address=127.0.0.1:0',
        '-v=4',
        ...options.flags,
      ],
      env: { PATH: process.env['PATH'], HOME: options.folder, REDIS_URL: redis.url },
      output: (text) => (output = (output + text).slice(-KEPT_OUTPUT)),
    },
    { log: silentLog, onUsageError: () => undefined },
  );
  const stop = async (): Promise<void> => {
    await child.stop(STOP_GRACE_MS);
    await redis.close();
  };
  const timeout = new AbortController();
  const tooLate = delay(READY_WITHIN_MS, undefined, { signal: timeout.signal }).then(
    () => Promise.reject(new Error(`not ready after ${READY_WITHIN_MS} ms`)),
    () => undefined,
  );
  try {
    await Promise.race([child.announced, tooLate]);
  } catch (cause) {
    await stop();
    throw new Error(`sutler did not start:\n${output}`, { cause });
  } finally {
    timeout.abort();
  }
  return { output: () => output, stop };
}
