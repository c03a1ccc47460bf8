import { defineFlags, type FlagTable, inGroup } from './flags.ts';

/** Flags of every process and command. */
export const logFlags = inGroup('Logs', {
  v: {
    type: 'int',
    default: 0,
    min: 0,
    short: 'v',
    help: 'Log verbosity: 4 adds debug, 5 the CSI messages (secrets stripped), 6 adds trace.',
    upstream: '-v',
  },
  'logging-format': {
    type: 'string',
    default: 'text',
    values: ['text', 'json'],
    help: 'Format of the log lines.',
    upstream: 'same',
  },
});

/** Flags of every process. */
export const processFlags = {
  ...logFlags,
  ...inGroup('Probes and metrics', {
    'http-endpoint': {
      type: 'string',
      default: '',
      help: 'Listen address of /healthz, /readyz and metrics, for example :8080. Empty: none.',
      upstream: 'same',
    },
    'metrics-address': {
      type: 'string',
      default: '',
      help: 'Old name of --http-endpoint.',
      upstream: 'same, but without health checks',
    },
    'metrics-path': {
      type: 'string',
      default: '/metrics',
      help: 'HTTP path of the metrics.',
      upstream: 'same',
    },
  }),
};

const ONE_LOG = 'the log goes to standard error; remove the flag';

/** The flags of Go's klog, which upstream had until v5.2. */
const KLOG_TEXTS = [
  'log-dir',
  'log-file',
  'log-file-max-size',
  'stderrthreshold',
  'alsologtostderrthreshold',
  'log-backtrace-at',
];
const KLOG_SWITCHES = [
  'logtostderr',
  'alsologtostderr',
  'legacy-stderr-threshold-behavior',
  'add-dir-header',
  'skip-headers',
  'one-output',
  'skip-log-headers',
];

const RETIRED = defineFlags({
  provisioner: { type: 'string', help: 'the driver’s own name is used; remove the flag' },
  'connection-timeout': {
    type: 'string',
    help: 'sutler waits for the driver without a limit; remove the flag',
  },
  'leader-election-type': { type: 'string', help: 'a Lease is used; remove the flag' },
  'enable-leader-election': { type: 'bool', help: 'use --leader-election' },
  'capacity-controller-deployment-mode': {
    type: 'string',
    help: 'use --enable-capacity, and --capacity-ownerref-level for the owner of the objects',
  },
  ...Object.fromEntries(KLOG_TEXTS.map((name) => [name, { type: 'string', help: ONE_LOG }])),
  ...Object.fromEntries(KLOG_SWITCHES.map((name) => [name, { type: 'bool', help: ONE_LOG }])),
});

/** Flags that external-provisioner once had, with "-" or "_" in their names. Manifests still set
 * them, so they are accepted with a warning: `help` says what to use instead. */
export const retiredFlags: FlagTable = Object.fromEntries(
  Object.entries(RETIRED).flatMap(([name, spec]) => [
    [name, spec],
    [name.replaceAll('-', '_'), spec],
  ]),
);

const goOnly = 'it is for programs in Go; remove the flag';
const nodeDelay = 'nodes take a claim without a delay: the first write wins';

/** Flags of external-provisioner (cmd/csi-provisioner/csi-provisioner.go) that have no effect here,
 * with upstream's defaults. They are accepted, so that one argument list serves both programs.
 * `help` says why a value other than the default has no effect. */
export const idleFlags = defineFlags({
  'node-deployment-base-delay': { type: 'durationMs', default: '20s', help: nodeDelay },
  'node-deployment-max-delay': { type: 'durationMs', default: '60s', help: nodeDelay },
  'enable-pprof': { type: 'bool', default: false, help: 'start node with --inspect to profile' },
  automaxprocs: { type: 'bool', default: false, help: goOnly },
  vmodule: { type: 'string', default: '', help: 'use -v' },
  'log-flush-frequency': { type: 'durationMs', default: '5s', help: goOnly },
  'log-text-split-stream': { type: 'bool', default: false, help: goOnly },
  'log-text-info-buffer-size': { type: 'string', default: '0', help: goOnly },
  'log-json-split-stream': { type: 'bool', default: false, help: goOnly },
  'log-json-info-buffer-size': { type: 'string', default: '0', help: goOnly },
});
