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
  sink: { type: 'string', default: '', help: 'URL that receives the events.' },
});
