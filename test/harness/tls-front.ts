import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { createServer } from 'node:https';
import { createAuthority } from './kube-certificates.ts';
import { portOf } from './kube-proxy.ts';
import type { SandboxCluster } from './sandbox-cluster.ts';

export interface TlsFront {
  readonly url: string;
  readonly ca: string;
  readonly token: string;
  /** A kubeconfig whose user has the members given, by default the token. */
  kubeconfig(user?: object): string;
  close(): Promise<void>;
}

/** Puts TLS and a bearer token before the sandbox's API server: what a pod and a login command
 * have.
 * @param folder  for the certificates */
export async function openTlsFront({ api }: SandboxCluster, folder: string): Promise<TlsFront> {
  const token = randomBytes(24).toString('base64url');
  const authority = createAuthority(folder, 'front');
  const server = createServer(authority.server(), (asked, answer) => {
    const isKnown = asked.headers.authorization === `Bearer ${token}`;
    if (!isKnown) return void answer.writeHead(401).end();
    const { method = 'GET', url = '', headers } = asked;
    const forwarded = request(`${api.url}${url}`, { method, headers }, (answered) => {
      answer.writeHead(answered.statusCode ?? 500, answered.headers);
      answered.pipe(answer).on('close', () => answered.destroy());
    });
    forwarded.on('error', () => answer.destroy());
    asked.pipe(forwarded);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `https://127.0.0.1:${portOf(server)}`;
  return {
    url,
    ca: authority.ca,
    token,
    kubeconfig: (user = { token }) => kubeconfigOf({ url, ca: authority.ca }, user),
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

function kubeconfigOf({ url, ca }: { readonly url: string; readonly ca: string }, user: object) {
  const authority = Buffer.from(ca).toString('base64');
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'here', user: 'here' } }],
    clusters: [{ name: 'here', cluster: { server: url, 'certificate-authority-data': authority } }],
    users: [{ name: 'here', user }],
  });
}
