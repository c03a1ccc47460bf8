import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary = 'measures the memory and speed of ingest beside many bound claims';

/** Every flag of bench:watch. */
export const flags = defineFlags({
  ...processFlags,
  sizes: {
    type: 'strings',
    default: '0,10000,20000,50000',
    help: 'Bound claims, and as many PVs, beside which ingest is started; growing.',
  },
  events: { type: 'int', default: 5_000, min: 1, help: 'Changes of bound claims, at the end.' },
  concurrency: { type: 'int', default: 32, min: 1, help: 'Requests of the bench at once.' },
  'node-options': {
    type: 'string',
    default: '',
    help: 'Options for the Node of ingest, beside those of the image.',
  },
  program: {
    type: 'string',
    default: '',
    help: 'cli.js of sutler, as that of a bundle. Empty: what tsc compiled.',
  },
  backend: {
    type: 'string',
    default: 'sandbox',
    values: ['sandbox', 'real'],
    help:
      'Kubernetes API: the sandbox, or the real programs in KUBEBUILDER_ASSETS ' +
      '(else the cluster of KUBECONFIG).',
  },
});
