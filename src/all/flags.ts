import { ownNodeFlags } from '../election/own-node.ts';
import { defineFlags } from '../runtime/flags.ts';

/** One line for --help and docs/flags.md. */
export const summary =
  'runs ingest and jobs in one process beside the driver, in the place of external-provisioner’s ' +
  'container; takes the flags of both, and those of csi-gateway';

/** Flags that differ from those of the processes that `all` runs. */
export const flags = defineFlags({
  ...ownNodeFlags,
  'redis-url': {
    type: 'string',
    default: '',
    env: 'REDIS_URL',
    help:
      'Redis for queues. Empty: a redis-server or valkey-server of its own, whose data ends with ' +
      'the process.',
  },
  gateway: {
    type: 'strings',
    default: '',
    perDriver: true,
    help:
      'Address of a csi-gateway to call, unix:///path or dns:///host:port, in the place of the ' +
      'driver at --csi-address. Empty: that driver is called directly, unless ' +
      '--gateway-service is given.',
  },
  listen: {
    type: 'strings',
    default: '',
    help:
      'Address at which a csi-gateway in this process serves workers elsewhere (docs/grow.md): ' +
      'dns:///host:port. TCP beyond loopback needs TLS. Needs --gateway-service or --gateway. ' +
      'Empty: none.',
  },
  'leader-election': {
    type: 'bool',
    default: false,
    perDriver: true,
    help: 'Acquire a Lease before working. Needed with several replicas.',
    upstream: 'same',
  },
  'dashboard-address': {
    type: 'string',
    default: '',
    help: 'Listen address of a dashboard, for example 127.0.0.1:8088. Empty: none.',
  },
});
