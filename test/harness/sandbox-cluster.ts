import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '#src/runtime/log.ts';
import { startSandboxApi } from '#src/sandbox/api/server.ts';
import type { SandboxApi } from '#src/sandbox/api/server.ts';

/** The sandbox's API server in this process, without its volume binder. */
export interface SandboxCluster {
  readonly api: SandboxApi;
  /** Path of a kubeconfig. */
  readonly kubeconfig: string;
  close(): Promise<void>;
}

export async function openSandboxCluster(): Promise<SandboxCluster> {
  const dir = await mkdtemp(join(tmpdir(), 'sutler-cluster-'));
  const api = await startSandboxApi({ log: silentLog });
  const kubeconfig = join(dir, 'kubeconfig');
  await writeFile(kubeconfig, api.kubeconfig());
  return {
    api,
    kubeconfig,
    async close() {
      await api.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
