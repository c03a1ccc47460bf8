import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'is the Kubernetes API of the sandbox with its volume binder, on loopback and in memory';

/** Every flag of the sandbox's API server. */
export const flags = defineFlags({
  ...processFlags,
  'api-port': {
    type: 'int',
    default: 0,
    min: 0,
    max: 65_535,
    help: 'Port on loopback. 0: a free port.',
  },
  scheduler: {
    type: 'bool',
    default: false,
    help: 'Give each pod a node that its volumes allow.',
  },
  'kubeconfig-out': {
    type: 'string',
    default: '',
    help: 'File for the kubeconfig of this server, readable only by its owner. Empty: none.',
  },
});
