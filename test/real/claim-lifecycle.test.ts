import { describeClaimLifecycle } from '../e2e/claim-lifecycle.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

const open = realControlPlane(process.env, { binder: true });

describeClaimLifecycle('a real control plane', async () => {
  const plane = await open();
  return { server: plane, kubeconfig: plane.kubeconfig };
});
