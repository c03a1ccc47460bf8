import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary =
  'measures sutler and external-provisioner in turn beside one driver, with the same arguments, and ' +
  'external-provisioner without its limit of requests';

/** Every flag of bench:drop-in. */
export const flags = defineFlags({
  ...processFlags,
  peer: { type: 'string', default: '', help: 'Path of external-provisioner. Empty: sutler alone.' },
  program: {
    type: 'string',
    default: '',
    help: 'cli.js of sutler, as that of a bundle. Empty: what tsc compiled.',
  },
  args: {
    type: 'string',
    default: '--leader-election --worker-threads=100',
    help: 'Arguments of all, separated by blanks.',
  },
  kubeconfig: {
    type: 'bool',
    default: false,
    help: 'sutler reads a kubeconfig, and not the service account of a pod.',
  },
  cgroup: {
    type: 'string',
    default: '',
    help:
      'Folder of a memory cgroup. Each program runs in a cgroup of its own below it, from files ' +
      'that no other program has read, so that its memory is counted as a kubelet counts it.',
  },
  'memory-limit-mib': {
    type: 'int',
    default: 0,
    min: 0,
    help: 'Limit of the cgroup. 0: none.',
  },
  'default-limit': {
    type: 'bool',
    default: false,
    help:
      'kube-controller-manager has its default limit, 20 requests a second, and not 500: as in a ' +
      'cluster, it limits how fast a burst is Bound.',
  },
  claims: { type: 'int', default: 300, min: 1, help: 'Claims of the burst.' },
  single: { type: 'int', default: 30, min: 1, help: 'Claims one at a time.' },
  rounds: { type: 'int', default: 3, min: 1, help: 'Rounds of each; the table has medians.' },
});
