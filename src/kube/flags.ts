import { inGroup } from '../runtime/flags.ts';

/** Flags of processes that connect to the API server. */
export const kubeFlags = inGroup('Kubernetes API', {
  kubeconfig: {
    type: 'string',
    default: '',
    env: 'KUBECONFIG',
    help: 'Path of a kubeconfig. Empty: in-cluster.',
    upstream: 'same; there the variable takes precedence over the flag',
  },
  master: {
    type: 'string',
    default: '',
    help: 'URL of the API server, instead of the one in the kubeconfig.',
    upstream: 'same',
  },
  'kube-api-qps': {
    type: 'float',
    default: 0,
    help:
      'Requests per second to the API server; 0 or less: ' +
      'no limit except --kube-api-max-in-flight.',
    upstream: 'same; default 5',
  },
  'kube-api-burst': {
    type: 'int',
    default: 10,
    min: 0,
    help: 'Requests above --kube-api-qps that may go at once.',
    upstream: 'same',
  },
  'kube-api-max-in-flight': {
    type: 'int',
    default: 48,
    min: 1,
    help: 'Requests to the API server under way at once, without watches.',
  },
});
