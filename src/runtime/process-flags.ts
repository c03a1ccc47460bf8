import { defineFlags, inGroup } from './flags.ts';

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
      help: 'Old name of --http-endpoint, which is to be used instead.',
      upstream: 'same; there without health checks',
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

/** The flags of Go's klog, which upstream had until v5.2, and whether each takes a value. */
const KLOG_FLAGS = {
  'log-dir': true,
  'log-file': true,
  'log-file-max-size': true,
  logtostderr: false,
  alsologtostderr: false,
  'legacy-stderr-threshold-behavior': false,
  'add-dir-header': false,
  'skip-headers': false,
  'one-output': false,
  'skip-log-headers': false,
  stderrthreshold: true,
  alsologtostderrthreshold: true,
  'log-backtrace-at': true,
};

/** Flags that external-provisioner once had; for "-" in their names, "_" may stand. Manifests that
 * still set them work; a warning says what has replaced each flag. */
export const retiredFlags: Readonly<
  Record<string, { readonly takesValue: boolean; readonly advice: string }>
> = {
  provisioner: { takesValue: true, advice: 'the driver’s own name is used; remove the flag' },
  'connection-timeout': {
    takesValue: true,
    advice: 'sutler waits for the driver without a limit; remove the flag',
  },
  'leader-election-type': { takesValue: true, advice: 'a Lease is used; remove the flag' },
  'enable-leader-election': { takesValue: false, advice: 'use --leader-election' },
  'capacity-controller-deployment-mode': {
    takesValue: true,
    advice: 'use --enable-capacity, and --capacity-ownerref-level for the owner of the objects',
  },
  ...Object.fromEntries(
    Object.entries(KLOG_FLAGS).map(([name, takesValue]) => [name, { takesValue, advice: ONE_LOG }]),
  ),
};

const goOnly = 'it only concerns programs in Go; remove the flag';
const nodeDelay = 'a node does not wait before it takes a claim: the first write wins';

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
