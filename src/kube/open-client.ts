import type { Flags } from '../runtime/flags.ts';
import type { Closers } from '../runtime/closers.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { version } from '../runtime/version.ts';
import { createKubeClient, type KubeClient } from './client.ts';
import { loadClusterAccess } from './credentials.ts';
import type { kubeFlags } from './flags.ts';

const UNVERIFIED =
  "insecure-skip-tls-verify is set: the API server's certificate is not checked, so whoever is on " +
  'the way can pose as the API server; set certificate-authority instead';

/** Creates the API client of a process from its flags. It is closed with the process. Sends nothing
 * yet. Warns if the API server's certificate is not checked.
 * @param process  for the User-Agent: "sutler-jobs/0.1.0"
 * @throws UsageError for a kubeconfig that can't be used */
export async function openKubeClient(
  process: string,
  context: {
    readonly flags: Flags<typeof kubeFlags>;
    readonly env: Readonly<Record<string, string | undefined>>;
    readonly closers: Closers;
    readonly log: Logger;
    readonly metrics?: Registry;
  },
): Promise<KubeClient> {
  const { flags, env, closers, log, metrics } = context;
  const access = await loadClusterAccess({
    kubeconfig: flags.kubeconfig,
    master: flags.master,
    env,
  });
  const { unverifiedCluster: cluster, source } = access;
  if (cluster !== undefined) log.warn({ cluster, source }, UNVERIFIED);
  const client = createKubeClient({
    access,
    userAgent: `sutler-${process}/${version}`,
    maxInFlight: flags.kubeApiMaxInFlight,
    qps: flags.kubeApiQps,
    burst: flags.kubeApiBurst,
    log,
    ...(metrics === undefined ? {} : { metrics }),
  });
  closers.add('API client', () => client.close());
  return client;
}
