import { readFile } from 'node:fs/promises';

const SERVICE_ACCOUNT_NAMESPACE = '/var/run/secrets/kubernetes.io/serviceaccount/namespace';

/** Namespace of the driver's Lease: the flag, else POD_NAMESPACE, else the pod's own, else
 * "default".
 * @see csi-lib-utils leaderelection/leader_election.go inClusterNamespace */
export async function leaseNamespace(
  flag: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  if (flag !== '') return flag;
  const fromEnv = env['POD_NAMESPACE'] ?? '';
  if (fromEnv !== '') return fromEnv;
  const mounted = await readFile(SERVICE_ACCOUNT_NAMESPACE, 'utf8').catch(() => '');
  return mounted.trim() || 'default';
}
