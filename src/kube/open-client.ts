import { type Flags, UsageError } from '../runtime/flags.ts';
import type { Closers } from '../runtime/closers.ts';
import type { Logger } from '../runtime/log.ts';
import type { Registry } from '../runtime/metrics.ts';
import { version } from '../runtime/version.ts';
import { createKubeClient, type KubeClient } from './client.ts';
import {
  type ClusterAccess,
  type Credentials,
  NO_CREDENTIALS,
  parseServer,
  readCredential,
  renewCredentials,
} from './credentials.ts';
import type { kubeFlags } from './flags.ts';
import { openKubeconfig } from './kubeconfig.ts';
import { proxyOf } from './proxy.ts';
import { bracketIPv6 } from '../runtime/address.ts';

const UNVERIFIED =
  "insecure-skip-tls-verify is set: the API server's certificate is not checked, so anybody on " +
  'the network path can pose as the API server; set certificate-authority instead';

/** Creates the API client of a process from its flags. It connects at its first request, and is
 * closed with the process. Warns if the API server's certificate is not checked.
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
  const { kubeconfig, master } = flags;
  const access = await loadClusterAccess({ kubeconfig, master, env });
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

export interface AccessOptions {
  /** Path of one file. */
  readonly kubeconfig?: string | undefined;
  /** URL that replaces the kubeconfig's server, or is used alone, without credentials. */
  readonly master?: string | undefined;
  /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, and the variables of proxies. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** For tests: the folder that Kubernetes mounts into pods. */
  readonly serviceAccountDir?: string;
  readonly nowMs?: () => number;
}

const SERVICE_ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Age at which a service account's token is read again. It is replaced long before it expires. */
const SERVICE_ACCOUNT_AGE_MS = 30_000;

/** Finds the cluster as upstream does: by kubeconfig and master if given, otherwise by the pod's
 * service account. Uses the kubeconfig's proxy, or else the environment's.
 * @throws UsageError: one line that names file, context and fix */
export async function loadClusterAccess(options: AccessOptions): Promise<ClusterAccess> {
  const access = await findCluster(options);
  return { ...access, proxy: access.proxy ?? proxyOf(access.server, options.env) };
}

async function findCluster(options: AccessOptions): Promise<ClusterAccess> {
  const { kubeconfig, master, nowMs = Date.now } = options;
  if (kubeconfig) return openKubeconfig(kubeconfig, { master, nowMs });
  if (!master) return openServiceAccount(options, nowMs);
  const server = parseServer('--master', master, 'http:');
  return {
    server,
    source: `--master ${server.href}`,
    credentials: () => Promise.resolve(NO_CREDENTIALS),
  };
}

async function openServiceAccount(
  { env, serviceAccountDir: directory = SERVICE_ACCOUNT_DIR }: AccessOptions,
  nowMs: () => number,
): Promise<ClusterAccess> {
  const host = env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host === '' || port === '')
    throw new UsageError(
      'no cluster: this is not a pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are ' +
        'not set); give --kubeconfig=FILE or --master=URL',
    );
  const url = `https://${bracketIPv6(host)}:${port}`;
  const hint = 'set automountServiceAccountToken: true for the pod, or give --kubeconfig=FILE';
  const where = 'in-cluster credentials';
  const read = async (): Promise<Credentials> => {
    const ca = await readCredential(`${directory}/ca.crt`, where, hint);
    const token = await readCredential(`${directory}/token`, where, hint);
    return { tls: { ca, skipVerify: false }, headers: { authorization: `Bearer ${token}` } };
  };
  return {
    server: parseServer('KUBERNETES_SERVICE_HOST', url, 'https:'),
    source: 'in-cluster',
    credentials: await renewCredentials(read, { where, maxAgeMs: SERVICE_ACCOUNT_AGE_MS, nowMs }),
  };
}
