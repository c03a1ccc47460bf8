import { inGroup } from './flags.ts';

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
    'metrics-path': {
      type: 'string',
      default: '/metrics',
      help: 'HTTP path of the metrics.',
      upstream: 'same',
    },
  }),
};
