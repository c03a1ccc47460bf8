import { redisFlags } from '../redis/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary = 'shows the queues and their jobs in a browser; read-only by default';

/** The flags of the dashboard process. */
export const flags = defineFlags({
  ...processFlags,
  ...redisFlags,
  'dashboard-address': {
    type: 'string',
    default: '127.0.0.1:8088',
    help:
      'Listen address of the dashboard. It serves plain HTTP: keep it on loopback, ' +
      'or put a proxy with TLS in front of it.',
  },
  'dashboard-user': { type: 'string', default: 'admin', help: 'User name of the dashboard.' },
  'dashboard-password': {
    type: 'string',
    default: '',
    env: 'SUTLER_DASHBOARD_PASSWORD',
    help:
      'Password of the dashboard. Set it by its variable: every user of the machine can read ' +
      'arguments. Empty: generated at start and logged once.',
  },
  'dashboard-allow-actions': {
    type: 'bool',
    default: false,
    help:
      'Lets the dashboard promote delayed jobs. Retry, clean, add, pause and other actions ' +
      'stay refused: they bypass what keeps a key from running twice.',
  },
});
