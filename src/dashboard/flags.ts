import { redisFlags } from '../redis/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'shows the queues and their jobs in a browser, read-only unless told otherwise';

/** Every flag of the dashboard process. */
export const flags = defineFlags({
  ...processFlags,
  ...redisFlags,
  'dashboard-address': {
    type: 'string',
    default: '127.0.0.1:8088',
    help: 'Listen address of the dashboard. It speaks plain HTTP: keep it on loopback, or put a proxy with TLS in front.',
  },
  'dashboard-user': { type: 'string', default: 'admin', help: 'User name of the dashboard.' },
  'dashboard-password': {
    type: 'string',
    default: '',
    env: 'SUTLER_DASHBOARD_PASSWORD',
    help: 'Password of the dashboard; better by its variable, since arguments can be read by everybody on the machine. Empty: made up at start and said once in the log.',
  },
  'dashboard-allow-actions': {
    type: 'bool',
    default: false,
    help: 'Lets the dashboard promote delayed jobs. Retry, clean, add, pause and all else stay refused: they bypass what keeps a key from running twice.',
  },
});
