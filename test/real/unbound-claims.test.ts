import { describeUnboundClaims } from '../e2e/unbound-claims.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

const open = realControlPlane(process.env, { binder: false });

describeUnboundClaims('a real control plane', async () => {
  const plane = await open();
  return { server: plane, kubeconfig: plane.kubeconfig };
});
