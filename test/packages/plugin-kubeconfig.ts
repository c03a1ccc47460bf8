import type { TlsFront } from '../harness/tls-front.ts';

/** A kubeconfig whose user logs in by a command that prints the token. */
export function pluginKubeconfig(front: TlsFront): string {
  const credential = {
    apiVersion: 'client.authentication.k8s.io/v1',
    kind: 'ExecCredential',
    status: { token: front.token },
  };
  const exec = {
    apiVersion: credential.apiVersion,
    command: 'echo',
    args: [JSON.stringify(credential)],
    interactiveMode: 'Never',
  };
  return front.kubeconfig({ exec });
}
