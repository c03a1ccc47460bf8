/** Flags of external-provisioner's early series: a set of manifests that still has them starts, with a word on what took their place. */
export const retiredFlags: Readonly<Record<string, { readonly takesValue: boolean; readonly advice: string }>> = {
  provisioner: { takesValue: true, advice: 'the driver’s own name is used; remove the flag' },
  'connection-timeout': { takesValue: true, advice: 'the driver is waited for without limit; remove the flag' },
  'leader-election-type': { takesValue: true, advice: 'a Lease is used; remove the flag' },
  'enable-leader-election': { takesValue: false, advice: 'use --leader-election' },
  'capacity-controller-deployment-mode': { takesValue: true, advice: 'use --enable-capacity' },
};

const GO_ONLY = 'it concerns the Go process; remove the flag';
const topology = 'this version does not ask for topology; volumes are made wherever the driver puts them';
const capacity = 'this version publishes no CSIStorageCapacity objects';
const nodeDeployment = 'this version is deployed centrally only';

/** Flags of external-provisioner that this version has no use for: accepted, so that one argument list serves both, with a word on what that means. */
export const unusedFlags: typeof retiredFlags = {
  'strict-topology': { takesValue: false, advice: topology },
  'immediate-topology': { takesValue: false, advice: topology },
  'enable-capacity': { takesValue: false, advice: capacity },
  'capacity-for-immediate-binding': { takesValue: false, advice: capacity },
  'capacity-threads': { takesValue: true, advice: capacity },
  'capacity-poll-interval': { takesValue: true, advice: capacity },
  'capacity-ownerref-level': { takesValue: true, advice: capacity },
  'kube-api-capacity-qps': { takesValue: true, advice: capacity },
  'kube-api-capacity-burst': { takesValue: true, advice: capacity },
  'node-deployment': { takesValue: false, advice: nodeDeployment },
  'node-deployment-immediate-binding': { takesValue: false, advice: nodeDeployment },
  'node-deployment-base-delay': { takesValue: true, advice: nodeDeployment },
  'node-deployment-max-delay': { takesValue: true, advice: nodeDeployment },
  'metrics-address': { takesValue: true, advice: 'use --http-endpoint' },
  'enable-pprof': { takesValue: false, advice: 'start node with --inspect to profile' },
  automaxprocs: { takesValue: false, advice: GO_ONLY },
  vmodule: { takesValue: true, advice: 'use -v' },
  'log-flush-frequency': { takesValue: true, advice: GO_ONLY },
  'log-text-split-stream': { takesValue: false, advice: GO_ONLY },
  'log-text-info-buffer-size': { takesValue: true, advice: GO_ONLY },
  'log-json-split-stream': { takesValue: false, advice: GO_ONLY },
  'log-json-info-buffer-size': { takesValue: true, advice: GO_ONLY },
};
