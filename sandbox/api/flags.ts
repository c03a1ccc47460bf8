import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'the sandbox’s Kubernetes API with its volume binder, on loopback, in memory';

/** Every flag of the sandbox's API server. */
export const flags = defineFlags({
  ...processFlags,
  'api-port': {
    type: 'int',
    default: 0,
    min: 0,
    max: 65_535,
    help: 'Port on loopback; 0: a free one.',
  },
  'kubeconfig-out': {
    type: 'string',
    default: '',
    help: 'File that a kubeconfig for this server is written to, readable by its owner only. Empty: none.',
  },
});
