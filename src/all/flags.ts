import { kubeFlags } from '../kube/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'starts csi-gateway, ingest, jobs and dashboard on one machine; takes the flags of all of them';

/** The flags of its own; every other one goes on to the processes. */
export const flags = defineFlags({
  ...processFlags,
  kubeconfig: kubeFlags.kubeconfig,
  master: kubeFlags.master,
  'http-endpoint': {
    type: 'string',
    default: '127.0.0.1:0',
    help: 'Listen address of the first process; the others take the ports above it. Port 0: free ones.',
  },
  'redis-url': {
    type: 'string',
    default: '',
    env: 'REDIS_URL',
    help: 'Redis that holds queues and volume records. Empty: a redis-server of our own in --data-dir.',
  },
  gateway: {
    type: 'strings',
    default: '',
    help: 'Where the csi-gateway listens and is called: unix:///path or dns:///host:port. Empty: a socket in a folder of our own.',
  },
  'data-dir': {
    type: 'string',
    default: '.sutler/all',
    help: 'Folder for everything that is written: Redis data and logs.',
  },
});
