/** A kubeconfig for one server, and the namespace `default`. It is JSON, which is valid YAML. */
export function formatKubeconfig(server: string): string {
  const name = 'sutler-sandbox';
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name, cluster: { server } }],
    users: [{ name, user: {} }],
    contexts: [{ name, context: { cluster: name, user: name, namespace: 'default' } }],
    'current-context': name,
  };
  return `${JSON.stringify(config, null, 2)}\n`;
}
