import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary =
  'runs csi-sanity on a CSI driver, then through the gateway, and compares the results';

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
    help:
      'The driver’s arguments, separated by blanks. {socket} and {folder} are replaced by ' +
      'the paths of a new socket and a new folder.',
  },
  'sanity-args': {
    type: 'string',
    default: '',
    help: 'More arguments for csi-sanity, separated by blanks.',
  },
  patience: { type: 'durationMs', default: '5m', help: 'Time limit of one run.' },
});
