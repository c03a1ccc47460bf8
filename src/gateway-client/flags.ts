import { defineFlags } from '../runtime/flags.ts';

/** How a process reaches the driver. */
export const gatewayClientFlags = defineFlags({
  gateway: {
    type: 'strings',
    default: 'unix:///run/sutler/gateway.sock',
    help: 'Address of the csi-gateway: unix:///path or dns:///host:port. Of a driver with several replicas, each replica’s own: several times, or as a comma list; one of them at a time gets the calls. The same for ingest and jobs.',
  },
  'gateway-tls-ca': {
    type: 'string',
    default: '',
    help: 'Authorities that sign the gateway’s certificate, PEM. Turns on mutual TLS 1.3 for gateways that are TCP. The three files are watched.',
  },
  'gateway-tls-cert': {
    type: 'string',
    default: '',
    help: 'This process’s certificate for the gateway, PEM, intermediates behind it.',
  },
  'gateway-tls-key': { type: 'string', default: '', help: 'Its private key, PEM.' },
  'gateway-tls-server-name': {
    type: 'string',
    default: '',
    help: 'Name or IP address that the gateway’s certificate must have; empty: the host of --gateway.',
  },
  'gateway-insecure': {
    type: 'bool',
    default: false,
    help: 'Call gateways beyond loopback in plaintext: secrets of classes can be read on the way.',
  },
  timeout: {
    type: 'durationMs',
    default: '10s',
    min: '1ms',
    help: 'Deadline of one driver call.',
    upstream: 'same',
  },
});
