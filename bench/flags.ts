import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary =
  'provisions and deletes claims on a testbed of its own and counts what they cost';

/** Every flag of the bench. */
export const flags = defineFlags({
  ...processFlags,
  claims: { type: 'int', default: 1000, min: 1, help: 'Claims of the burst.' },
  'idle-claims': {
    type: 'int',
    default: 50,
    min: 0,
    help: 'Claims created one at a time, each after the one before is Bound; 0 skips this phase.',
  },
  'driver-delay-ms': {
    type: 'int',
    default: 0,
    min: 0,
    help: 'Time that the sample driver takes for each CreateVolume and DeleteVolume.',
  },
  workers: { type: 'int', default: 1, min: 1, help: 'Jobs processes.' },
  'worker-threads': {
    type: 'int',
    default: 100,
    min: 1,
    help: 'Claims, and as many volumes, that each jobs process works on at once.',
  },
  concurrency: {
    type: 'int',
    default: 32,
    min: 1,
    help: 'Requests of the bench under way at once.',
  },
  backend: {
    type: 'string',
    default: 'sandbox',
    values: ['sandbox', 'real'],
    help:
      'Kubernetes API: the sandbox, or the real programs in KUBEBUILDER_ASSETS ' +
      '(else the cluster of KUBECONFIG).',
  },
  annotated: {
    type: 'bool',
    default: false,
    help:
      'With --drain and --latency: no volume controller runs, and the claims carry its ' +
      'annotation from the start. Needs --backend real.',
  },
  drain: {
    type: 'int',
    default: 0,
    min: 0,
    help: 'In place of the other phases: this many claims wait before the provisioner starts.',
  },
  latency: {
    type: 'int',
    default: 0,
    min: 0,
    help:
      'In place of the other phases: this many claims one at a time, just after the start and ' +
      'again after --warm-up.',
  },
  idle: {
    type: 'durationMs',
    default: '0s',
    help:
      'In place of the other phases: the processes do nothing for this long, and what they use ' +
      'meanwhile is printed per second.',
  },
  drivers: {
    type: 'int',
    default: 0,
    min: 0,
    help:
      'In place of the other phases: the memory of ingest and jobs with this many drivers, and ' +
      'with one.',
  },
  'event-sources': {
    type: 'int',
    default: 0,
    min: 0,
    help:
      'In place of the other phases: this many claims one at a time with each --event-source of ' +
      'ingest, then --bound claims to see how much memory they take.',
  },
  bound: {
    type: 'int',
    default: 0,
    min: 0,
    help: 'With --event-sources: bound claims, and as many volumes, that are written at the end.',
  },
  'warm-up': { type: 'int', default: 1500, min: 1, help: 'Claims between the two of --latency.' },
  budget: {
    type: 'bool',
    default: false,
    help: 'With --latency: shows how long each step took, from logs that make the steps slower.',
  },
  peer: {
    type: 'string',
    default: '',
    help: 'Path of external-provisioner, which takes turns with sutler in --drain and --latency.',
  },
  rounds: { type: 'int', default: 3, min: 1, help: 'Rounds of --drain, --latency and --idle.' },
  program: {
    type: 'string',
    default: '',
    help:
      'cli.js with which gateway, ingest and jobs are started, as that of a bundle ' +
      '(node scripts/bundle.mjs bundle). Empty: what tsc compiled.',
  },
  json: { type: 'bool', default: false, help: 'Print JSON in place of the tables.' },
  profile: {
    type: 'string',
    default: '',
    help: 'Folder for CPU profiles of our processes. Do not compare the times of such a run.',
  },
  patience: { type: 'durationMs', default: '5m', help: 'Time limit of one phase.' },
});
