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
  'dashboard-trusted-proxies': {
    type: 'strings',
    default: '',
    help:
      'Addresses and networks (10.1.0.0/16) of proxies whose X-Forwarded-For and ' +
      'X-Forwarded-Proto the dashboard believes. If empty, all clients behind a proxy share one ' +
      'limit of wrong passwords.',
  },
  'dashboard-user': {
    type: 'string',
    default: 'admin',
    help: 'User name of the dashboard’s operator.',
  },
  'dashboard-password': {
    type: 'string',
    default: '',
    env: 'SUTLER_DASHBOARD_PASSWORD',
    help:
      'Password of the operator, at least 12 characters. Set it by its variable: every user ' +
      'of the machine can read arguments. Empty: generated at start and logged once.',
  },
  'dashboard-viewer-user': {
    type: 'string',
    default: 'viewer',
    help: 'Name of a user who may only read, even with --dashboard-allow-actions.',
  },
  'dashboard-viewer-password': {
    type: 'string',
    default: '',
    env: 'SUTLER_DASHBOARD_VIEWER_PASSWORD',
    help: 'Password of --dashboard-viewer-user, at least 12 characters. Empty: no such user.',
  },
  'dashboard-allow-actions': {
    type: 'bool',
    default: false,
    help:
      'Lets the operator retry a claim or volume at once. The queues stay read-only, because ' +
      'acting there could run a key twice.',
  },
});
