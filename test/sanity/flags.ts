import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary =
  'runs csi-sanity on a CSI driver, then through the gateway, and compares what passes';

/** Every flag of test:sanity. */
export const flags = defineFlags({
  ...processFlags,
  'csi-sanity': {
    type: 'string',
    default: '',
    help: 'The csi-sanity program (kubernetes-csi/csi-test v5).',
  },
  driver: { type: 'string', default: '', help: 'The driver’s program. Empty: the sample driver.' },
  'driver-args': {
    type: 'string',
    default: '--endpoint=unix://{socket} --nodeid=sanity --statedir={folder}',
    help: 'Its arguments, separated by blanks. {socket} and {folder} stand for a fresh socket path and a fresh folder.',
  },
  'sanity-args': {
    type: 'string',
    default: '',
    help: 'More arguments for csi-sanity, separated by blanks.',
  },
  patience: { type: 'durationMs', default: '5m', help: 'Longest time that one run may take.' },
});
