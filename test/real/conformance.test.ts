import { realControlPlane } from '../harness/real-control-plane.ts';
import { describeApiServer } from '../conformance/api-server.ts';

describeApiServer('kube-apiserver', realControlPlane(process.env));
