import type { SandboxCluster } from '../harness/sandbox-cluster.ts';

/** A kubeconfig whose user logs in by a command that prints the token. */
export function pluginKubeconfig({ api }: SandboxCluster): string {
  const credential = {
    apiVersion: 'client.authentication.k8s.io/v1',
    kind: 'ExecCredential',
    status: { token: api.token },
  };
  const exec = {
    apiVersion: credential.apiVersion,
    command: 'echo',
    args: [JSON.stringify(credential)],
    interactiveMode: 'Never',
  };
  const ca = Buffer.from(api.ca).toString('base64');
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'here', user: 'here' } }],
    clusters: [{ name: 'here', cluster: { server: api.url, 'certificate-authority-data': ca } }],
    users: [{ name: 'here', user: { exec } }],
  });
}
