import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { ClusterAccess } from '#src/kube/credentials.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type SandboxApi, startSandboxApi } from '../../sandbox/api/server.ts';
import { tokenAccess } from './kube-server.ts';

/** The sandbox's API server, without its volume binder, in this process. */
export interface SandboxCluster {
  readonly api: SandboxApi;
  /** Path of a kubeconfig. */
  readonly kubeconfig: string;
  readonly access: ClusterAccess;
  /** A new client, which `close` closes too. */
  client(): Promise<KubeClient>;
  close(): Promise<void>;
}

export async function openSandboxCluster(): Promise<SandboxCluster> {
  const dir = await mkdtemp(join(tmpdir(), 'sutler-cluster-'));
  const api = await startSandboxApi({ log: silentLog });
  const kubeconfig = join(dir, 'kubeconfig');
  await writeFile(kubeconfig, api.kubeconfig());
  const access = tokenAccess(api);
  const clients: KubeClient[] = [];
  return {
    api,
    kubeconfig,
    access,
    client() {
      const client = createKubeClient({ access, userAgent: 'test', log: silentLog });
      clients.push(client);
      return Promise.resolve(client);
    },
    async close() {
      await Promise.all(clients.map((client) => client.close()));
      await api.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
