import { describeCustomKinds } from '../../conformance/custom-kinds.ts';
import { openSandboxCluster } from '../../harness/sandbox-cluster.ts';

describeCustomKinds('the sandbox', async () => {
  const { api, kubeconfig, close } = await openSandboxCluster();
  return { url: api.url, tls: { ca: api.ca }, token: api.token, kubeconfig, close };
});
