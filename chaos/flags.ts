import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary =
  'kills, freezes and disconnects processes while claims come and go, and counts what is lost';

/** Every flag of the chaos command. */
export const flags = defineFlags({
  ...processFlags,
  minutes: {
    type: 'float',
    default: 3,
    min: 0.05,
    help: 'Time for creating claims and injecting faults, without the wait at the end.',
  },
  seed: { type: 'int', default: 1, help: 'Seed of the schedule of faults.' },
  backend: {
    type: 'string',
    default: 'auto',
    values: ['auto', 'sandbox', 'real'],
    help:
      'Kubernetes API: the real programs in KUBEBUILDER_ASSETS, the sandbox, ' +
      'or (auto) the former if the variable is set.',
  },
  'claims-per-second': {
    type: 'float',
    default: 3,
    min: 0.1,
    help: 'Claims created per second; half of them are deleted during their creation.',
  },
  faults: {
    type: 'string',
    default: '',
    help:
      'Kinds of faults, separated by commas. Empty: all that the form can have and that the run ' +
      'is long enough for.',
  },
  'fault-gap': {
    type: 'durationMs',
    default: '3s',
    min: '100ms',
    help: 'Mean time between the beginnings of two faults.',
  },
  form: {
    type: 'string',
    default: 'distributed',
    values: ['distributed', 'drop-in'],
    help:
      'Separate processes with one Redis (distributed), or two replicas in the place of ' +
      'external-provisioner, each with a Redis of its own (drop-in).',
  },
  leaky: {
    type: 'bool',
    default: false,
    help: 'Run jobs that finish claims too early, to see this command report leaks.',
  },
  capricious: {
    type: 'bool',
    default: false,
    help:
      'Let the driver refuse CreateVolume even for volumes that exist. ' +
      'sutler promises nothing for such a driver.',
  },
  'slow-share': {
    type: 'float',
    default: 0.05,
    min: 0,
    help: 'Share of driver calls that take longer than their deadline, and then continue.',
  },
  timeout: {
    type: 'durationMs',
    default: '3s',
    help: 'Deadline of a driver call. The times of the Lease are derived from it.',
  },
  'settle-time': {
    type: 'durationMs',
    default: '2s',
    help: 'How long a driver may be at work after that. A slow call of the driver takes half of it.',
  },
  'lock-duration': {
    type: 'durationMs',
    default: '30s',
    help: 'Lock duration of the jobs processes.',
  },
  patience: {
    type: 'durationMs',
    default: '2m',
    help: 'Longest wait at the end for work to finish.',
  },
  'ingest-args': {
    type: 'string',
    default: '',
    help: 'More arguments for the ingest processes, or the drop-ins, separated by blanks.',
  },
  'jobs-args': {
    type: 'string',
    default: '',
    help: 'More arguments for the jobs processes, separated by blanks.',
  },
  'data-dir': {
    type: 'string',
    default: '',
    help:
      'Folder for logs, call log and volumes, kept at the end. ' +
      'Empty: a temporary folder, kept only if the run failed.',
  },
  json: { type: 'bool', default: false, help: 'Print JSON in place of the tables.' },
});
