/** Of client-node, this only: a bundle then leaves out the thousand files of its API. */
export { KubeConfig } from '@kubernetes/client-node';
