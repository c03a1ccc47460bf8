import { describeVolumeBinder } from '../conformance/binder.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

describeVolumeBinder('kube-controller-manager', realControlPlane(process.env, { binder: true }));
