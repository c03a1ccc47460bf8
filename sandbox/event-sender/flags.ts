import { kubeFlags } from '#src/kube/flags.ts';
import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  "sends the changes of claims and PersistentVolumes as CloudEvents, like Knative's ApiServerSource";

/** Every flag of the sandbox's event sender. */
export const flags = defineFlags({
  ...processFlags,
  kubeconfig: kubeFlags.kubeconfig,
  sink: {
    type: 'string',
    default: '',
    help: 'URL to which events are sent.',
  },
  'sink-ca': {
    type: 'string',
    default: '',
    help: 'File with the authority that signed the certificate of the sink.',
  },
  'sink-token-file': {
    type: 'string',
    default: '',
    help: 'File with the bearer token for the sink. Empty: none.',
  },
  'event-mode': {
    type: 'string',
    default: 'reference',
    values: ['reference', 'resource'],
    help: 'What an event contains: where the object is, or the whole object.',
  },
});
