/** A kubeconfig for one server, one user with a token, and the namespace `default`. It is JSON,
 * which is valid YAML.
 * @param access.ca  the server's certificate as PEM */
export function formatKubeconfig(access: {
  readonly url: string;
  readonly ca: string;
  readonly token: string;
}): string {
  const name = 'sutler-sandbox';
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      {
        name,
        cluster: {
          server: access.url,
          'certificate-authority-data': Buffer.from(access.ca).toString('base64'),
        },
      },
    ],
    users: [{ name, user: { token: access.token } }],
    contexts: [{ name, context: { cluster: name, user: name, namespace: 'default' } }],
    'current-context': name,
  };
  return `${JSON.stringify(config, null, 2)}\n`;
}
