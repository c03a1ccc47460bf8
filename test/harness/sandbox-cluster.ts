import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { ClusterAccess } from '#src/kube/credentials.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type SandboxApi, startSandboxApi } from '../../sandbox/api/server.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { interceptRequests } from './api-faults.ts';
import { plainAccess } from './kube-server.ts';

/** The sandbox's API server, in this process. */
export interface SandboxCluster {
  readonly api: SandboxApi & Omit<ReturnType<typeof interceptRequests>, 'intercept'>;
  /** Path of a kubeconfig. */
  readonly kubeconfig: string;
  readonly access: ClusterAccess;
  /** A new client, which `close` closes too. */
  client(): Promise<KubeClient>;
  close(): Promise<void>;
}

/** @param o.binder  whether claims become Bound */
export async function openSandboxCluster(
  o: { readonly binder?: boolean } = {},
): Promise<SandboxCluster> {
  const dir = await mkdtemp(join(tmpdir(), 'sutler-cluster-'));
  const { intercept, faults, requests } = interceptRequests();
  const api = {
    ...(await startSandboxApi({ log: silentLog, intercept })),
    faults,
    requests,
  };
  const kubeconfig = join(dir, 'kubeconfig');
  await writeFile(kubeconfig, api.kubeconfig(), { mode: 0o600 });
  const binder =
    o.binder === true ? startBinder({ operations: api.operations, log: silentLog }) : undefined;
  const access = plainAccess(api);
  const { client, closeClients } = clientsOf(access);
  return {
    api,
    kubeconfig,
    access,
    client,
    async close() {
      await closeClients();
      await binder?.close();
      await api.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Makes clients of a cluster, which are closed together. */
function clientsOf(access: ClusterAccess) {
  const clients: KubeClient[] = [];
  return {
    client(): Promise<KubeClient> {
      const client = createKubeClient({ access, userAgent: 'test', log: silentLog });
      clients.push(client);
      return Promise.resolve(client);
    },
    async closeClients(): Promise<void> {
      await Promise.all(clients.map((each) => each.close()));
    },
  };
}
