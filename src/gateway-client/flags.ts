import { inGroup, perDriver } from '../runtime/flags.ts';

const flags = perDriver({
  gateway: {
    type: 'strings',
    default: 'unix:///run/sutler/gateway.sock',
    help:
      'Address of the csi-gateway: unix:///path or dns:///host:port. If the driver has several ' +
      'replicas, the addresses of all their gateways: repeat the flag or give a comma list; ' +
      'only one at a time gets calls. In a cluster, name their Service by ' +
      '--gateway-service. Must be the same for ingest and jobs.',
  },
  'gateway-tls-ca': {
    type: 'string',
    default: '',
    help:
      'PEM file with the authorities that sign the gateway’s certificate. Turns on mutual ' +
      'TLS 1.3 for gateways on TCP. Changes of the three TLS files take effect at once.',
  },
  'gateway-tls-cert': {
    type: 'string',
    default: '',
    help: 'PEM file with this process’s certificate for the gateway, followed by intermediates.',
  },
  'gateway-tls-key': {
    type: 'string',
    default: '',
    help: 'PEM file with the private key of --gateway-tls-cert.',
  },
  'gateway-tls-server-name': {
    type: 'string',
    default: '',
    help:
      'Name or IP address that the gateway’s certificate must contain. If empty, the host of ' +
      '--gateway, or NAME.NAMESPACE.svc of --gateway-service.',
  },
  'gateway-insecure': {
    type: 'bool',
    default: false,
    help:
      'Allow plaintext to gateways beyond loopback. Anyone on the network path can then read the ' +
      'secrets of storage classes.',
  },
  'gateway-service': {
    type: 'string',
    default: '',
    help:
      'NAMESPACE/NAME of the headless Service of the gateways, instead of --gateway. Ingest and ' +
      'jobs watch its EndpointSlices; only one of the pods at a time gets calls. The ' +
      'certificates must contain NAME.NAMESPACE.svc, or --gateway-tls-server-name.',
  },
  timeout: {
    type: 'durationMs',
    default: '10s',
    min: '1ms',
    help: 'Deadline of one driver call.',
    upstream: 'same',
  },
  'show-messages-with-short-secrets': {
    type: 'bool',
    default: false,
    help:
      'Show the driver’s message about a failed call even if its secret has a value with fewer ' +
      'than 4 characters, which can’t be removed from it. Without the flag it is withheld.',
  },
});

/** Flags of every process that calls a gateway. */
export const gatewayClientFlags = inGroup('Gateway', flags);
