import { defineFlags } from './flags.ts';

/** Flags of external-provisioner's early series: a set of manifests that still has them starts,
 * with a word on what took their place. */
export const retiredFlags: Readonly<
  Record<string, { readonly takesValue: boolean; readonly advice: string }>
> = {
  provisioner: { takesValue: true, advice: 'the driver’s own name is used; remove the flag' },
  'connection-timeout': {
    takesValue: true,
    advice: 'the driver is waited for without limit; remove the flag',
  },
  'leader-election-type': { takesValue: true, advice: 'a Lease is used; remove the flag' },
  'enable-leader-election': { takesValue: false, advice: 'use --leader-election' },
  'capacity-controller-deployment-mode': {
    takesValue: true,
    advice: 'this version publishes no CSIStorageCapacity objects',
  },
};

const goOnly = 'it concerns the Go process; remove the flag';
const topology =
  'this version does not ask for topology; volumes are made wherever the driver puts them';
const capacity = 'this version publishes no CSIStorageCapacity objects';
const nodeDeployment = 'this version is deployed centrally only';

/** Flags of external-provisioner that this version has no use for, with its defaults (spec 01 §2 to
 * §4): accepted, so that one argument list serves both. `help` says what it means that a value
 * other than the default does nothing. */
export const idleFlags = defineFlags({
  'strict-topology': { type: 'bool', default: false, help: topology },
  'immediate-topology': { type: 'bool', default: true, help: topology },
  'enable-capacity': { type: 'bool', default: false, help: capacity },
  'capacity-for-immediate-binding': { type: 'bool', default: false, help: capacity },
  'capacity-threads': { type: 'int', default: 1, min: 0, help: capacity },
  'capacity-poll-interval': { type: 'durationMs', default: '1m', help: capacity },
  'capacity-ownerref-level': { type: 'int', default: 1, help: capacity },
  'kube-api-capacity-qps': { type: 'float', default: 1, help: capacity },
  'kube-api-capacity-burst': { type: 'int', default: 5, help: capacity },
  'node-deployment': { type: 'bool', default: false, help: nodeDeployment },
  'node-deployment-immediate-binding': { type: 'bool', default: true, help: nodeDeployment },
  'node-deployment-base-delay': { type: 'durationMs', default: '20s', help: nodeDeployment },
  'node-deployment-max-delay': { type: 'durationMs', default: '60s', help: nodeDeployment },
  'metrics-address': { type: 'string', default: '', help: 'use --http-endpoint' },
  'enable-pprof': { type: 'bool', default: false, help: 'start node with --inspect to profile' },
  automaxprocs: { type: 'bool', default: false, help: goOnly },
  vmodule: { type: 'string', default: '', help: 'use -v' },
  'log-flush-frequency': { type: 'durationMs', default: '5s', help: goOnly },
  'log-text-split-stream': { type: 'bool', default: false, help: goOnly },
  'log-text-info-buffer-size': { type: 'string', default: '0', help: goOnly },
  'log-json-split-stream': { type: 'bool', default: false, help: goOnly },
  'log-json-info-buffer-size': { type: 'string', default: '0', help: goOnly },
});
