import type { Closers } from '#src/runtime/closers.ts';
import { startProgram } from '../test/harness/program.ts';
import type { Backend, Member } from './testbed.ts';

const KILL_AFTER_MS = 20_000;

/** Starts external-provisioner on a backend, tuned: as many workers as sutler has, and a rate limit
 * of its requests that it does not reach.
 * @param program  path of csi-provisioner
 * @see external-provisioner cmd/csi-provisioner/csi-provisioner.go */
export async function startPeer(
  { kubeconfig, socket }: Backend,
  o: { readonly program: string; readonly workerThreads: number; readonly closers: Closers },
): Promise<readonly Member[]> {
  const child = startProgram(
    o.program,
    [
      `--kubeconfig=${kubeconfig}`,
      `--csi-address=${socket.replace('unix://', '')}`,
      `--worker-threads=${o.workerThreads}`,
      '--kube-api-qps=1000',
      '--kube-api-burst=1000',
      '--timeout=60s',
    ],
    { cwd: process.cwd(), keptOutput: 8_000 },
  );
  o.closers.add('external-provisioner', () => child.stop(KILL_AFTER_MS));
  return [{ name: 'external-provisioner', pid: child.pid ?? 0, http: undefined }];
}
