import { ownNodeFlags } from '../election/own-node.ts';
import { defineFlags } from '../runtime/flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'runs ingest and jobs in one process beside the driver, in the place of external-provisioner’s ' +
  'container; takes the flags of both and of csi-gateway';

/** Flags that the processes in `all` do not have, or define differently. */
export const flags = defineFlags({
  ...ownNodeFlags,
  'redis-url': {
    type: 'string',
    default: '',
    env: 'REDIS_URL',
    help:
      'Redis for queues. Empty: the process starts its own redis-server or valkey-server, whose ' +
      'data is lost when the process ends.',
  },
  gateway: {
    type: 'strings',
    default: '',
    perDriver: true,
    help:
      'Address of a csi-gateway to call, unix:///path or dns:///host:port. Empty: the process ' +
      'calls the driver at --csi-address directly, unless --gateway-service is given.',
  },
  listen: {
    type: 'strings',
    default: '',
    help:
      'Address of a csi-gateway in this process, which serves other workers (docs/grow.md): ' +
      'dns:///host:port. TCP beyond loopback needs TLS. Needs --gateway-service or --gateway. ' +
      'Empty: none.',
  },
  'leader-election': {
    type: 'bool',
    default: false,
    perDriver: true,
    help: 'Acquires a Lease before it works. Needed with several replicas.',
    upstream: 'same',
  },
  'dashboard-address': {
    type: 'string',
    default: '',
    help: 'Address of a dashboard in this process, for example 127.0.0.1:8088. Empty: none.',
  },
});
