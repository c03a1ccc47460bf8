import { bracketIPv6 } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { openKubeconfig } from './kubeconfig.ts';
import {
  NO_CREDENTIALS,
  parseServer,
  readCredential,
  renewCredentials,
  type ClusterAccess,
  type Credentials,
} from './renewed-credentials.ts';

export interface AccessOptions {
  /** Path of one file. */
  readonly kubeconfig?: string | undefined;
  /** URL that replaces the kubeconfig's server, or is used alone, without credentials. */
  readonly master?: string | undefined;
  /** Context to use instead of the kubeconfig's current-context. */
  readonly context?: string | undefined;
  /** Only KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are read. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** For tests: the folder that Kubernetes mounts into pods. */
  readonly serviceAccountDir?: string;
  readonly nowMs?: () => number;
}

const SERVICE_ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';
/** A service account's token is replaced long before it expires. */
const SERVICE_ACCOUNT_AGE_MS = 30_000;

/** Finds the cluster as upstream does: by kubeconfig and master where given, else by the pod's
 * service account.
 * @throws UsageError: one line that names file, context and fix */
export async function loadClusterAccess(options: AccessOptions): Promise<ClusterAccess> {
  const { kubeconfig, master, context, nowMs = Date.now } = options;
  if (kubeconfig) return openKubeconfig(kubeconfig, { master, context, nowMs });
  if (!master) return openServiceAccount(options, nowMs);
  const server = parseServer('--master', master, 'http:');
  return {
    server,
    source: `--master ${server.href}`,
    credentials: () => Promise.resolve(NO_CREDENTIALS),
    refresh: () => Promise.resolve(),
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
    ...(await renewCredentials(read, { where, maxAgeMs: SERVICE_ACCOUNT_AGE_MS, nowMs })),
  };
}
