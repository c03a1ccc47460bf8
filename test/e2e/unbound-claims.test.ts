import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { describeUnboundClaims } from './unbound-claims.ts';

describeUnboundClaims('the sandbox', async () => {
  const { api, kubeconfig, close } = await openSandboxCluster();
  return { server: { url: api.url, tls: { ca: api.ca }, token: api.token, close }, kubeconfig };
});
