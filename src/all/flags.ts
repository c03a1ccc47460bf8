import { driverConfigFlags } from '../driver-config/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'starts csi-gateway, ingest, jobs and dashboard on one machine; takes the flags of all of them';

/** The flags that `all` itself reads; it passes all others on to the processes. */
export const flags = defineFlags({
  ...processFlags,
  kubeconfig: kubeFlags.kubeconfig,
  master: kubeFlags.master,
  'driver-config': {
    ...driverConfigFlags['driver-config'],
    help:
      'YAML file with a section for each driver, whose gateways run elsewhere: no csi-gateway is ' +
      'started. Empty: one driver, by flags.',
  },
  'http-endpoint': {
    type: 'string',
    default: '127.0.0.1:0',
    help:
      'Listen address of the first process; the others take the ports above it. ' +
      'Port 0: free ports.',
  },
  'redis-url': {
    type: 'string',
    default: '',
    env: 'REDIS_URL',
    help:
      'Redis for queues and volume records. ' +
      'Empty: starts a redis-server with its data in --data-dir.',
  },
  gateway: {
    type: 'strings',
    default: '',
    help:
      'Address at which csi-gateway listens and is called: unix:///path or dns:///host:port. ' +
      'Empty: a socket in a private folder.',
  },
  'data-dir': {
    type: 'string',
    default: '.sutler/all',
    help: 'Folder for Redis data, sockets and logs.',
  },
});
