import { inGroup } from '../runtime/flags.ts';

/** Flags of processes that connect to the API server. */
export const kubeFlags = inGroup('Kubernetes API', {
  kubeconfig: {
    type: 'string',
    default: '',
    env: 'KUBECONFIG',
    help: 'Path of a kubeconfig. Empty: in-cluster.',
    upstream: 'same, but the variable takes precedence over the flag',
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
    help: 'Size of a burst above --kube-api-qps, in requests.',
    upstream: 'same',
  },
  'kube-api-max-in-flight': {
    type: 'int',
    default: 48,
    min: 1,
    help: 'Most requests to the API server at once, not counting watches.',
  },
});
