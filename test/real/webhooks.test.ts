import { describe } from 'node:test';
import { describeWebhooks } from '../conformance/webhooks.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

// The cluster of KUBECONFIG can't reach a webhook on this machine's loopback.
if ((process.env['KUBEBUILDER_ASSETS'] ?? '') !== '')
  describeWebhooks('kube-apiserver', realControlPlane(process.env, { binder: false }));
else describe('webhooks', { skip: 'there is no kube-apiserver on this machine' }, () => {});
