import { describeCustomKinds } from '../conformance/custom-kinds.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

describeCustomKinds('kube-apiserver', realControlPlane(process.env));
