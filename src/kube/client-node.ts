/** Exports only KubeConfig: a bundle then leaves out the thousand files of client-node's API. */
export { KubeConfig } from '@kubernetes/client-node';
