import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for `sutler --help`. */
export const summary = "forwards CSI calls to the driver's socket and reports who made each status";

/** Every flag of the gateway. */
export const flags = defineFlags({
  ...processFlags,
  'csi-address': {
    type: 'string',
    default: '/run/csi/socket',
    help: "The driver's socket: a path or unix:///path. The gateway waits until it exists.",
    upstream: 'same',
  },
  listen: {
    type: 'strings',
    default: 'unix:///run/sutler/gateway.sock',
    help:
      'Listen address: unix:///path (mode 0600) or dns:///host:port. Repeat the flag for several ' +
      'addresses. TCP beyond loopback needs TLS.',
  },
  'tls-cert': {
    type: 'string',
    default: '',
    help:
      'PEM file with the gateway’s certificate, followed by intermediates. Turns on mutual ' +
      'TLS 1.3 for TCP. Changes of the three TLS files take effect at once.',
  },
  'tls-key': { type: 'string', default: '', help: 'PEM file with the private key of --tls-cert.' },
  'tls-client-ca': {
    type: 'string',
    default: '',
    help: 'PEM file with the authorities that sign callers’ certificates.',
  },
  'tls-allowed-names': {
    type: 'strings',
    default: '',
    help:
      'Callers that may call, by a subjectAltName of their certificate: DNS:name, URI:uri or ' +
      'IP:address, compared whole.',
  },
  insecure: {
    type: 'bool',
    default: false,
    help:
      'Allow plaintext TCP beyond loopback. Anyone who can connect can then create and delete ' +
      'volumes.',
  },
  'max-in-flight': {
    type: 'int',
    default: 500,
    min: 1,
    help:
      'Most calls at the driver at once, but for Identity calls; further calls are refused, not ' +
      'forwarded. It only protects the driver: limit the work by --max-jobs-in-flight of ingest.',
  },
  'pod-uid': {
    type: 'string',
    default: '',
    help:
      'UID of the pod that the gateway is in, for callers with --gateway-service: calls that are ' +
      'meant for another pod, whose IP address this one has by now, are refused, not forwarded. ' +
      'Empty: not checked.',
  },
  timeout: {
    type: 'durationMs',
    default: '10s',
    min: '1ms',
    help: "Deadline of each Probe and of each question about the driver's identity.",
    upstream: 'same; here only for the gateway’s own calls, since callers bring their deadline',
  },
  'allow-all': {
    type: 'bool',
    default: false,
    help: 'Forward every unary method of CSI. Otherwise only the methods that sutler calls.',
  },
  'grace-period': {
    type: 'durationMs',
    default: '25s',
    min: '0s',
    help: 'Time for calls under way to end after SIGTERM. New calls are refused meanwhile.',
  },
  'max-message-bytes': {
    type: 'int',
    default: 64 * 1024 * 1024,
    min: 1024,
    max: 1024 * 1024 * 1024,
    help: 'Largest list that is forwarded, such as ListVolumes’. Other responses: at most 4 MiB.',
  },
  'max-request-bytes': {
    type: 'int',
    default: 4 * 1024 * 1024,
    min: 1024,
    max: 1024 * 1024 * 1024,
    help:
      'Largest request that is forwarded. gRPC servers accept 4 MiB unless they were built for ' +
      'more.',
  },
});

/** The methods that pass without --allow-all: those that sutler calls. Publishing, snapshots and
 * expansion have their own sidecars beside the driver, which connect to its socket directly. */
export const defaultMethods: ReadonlySet<string> = new Set([
  '/csi.v1.Identity/GetPluginInfo',
  '/csi.v1.Identity/GetPluginCapabilities',
  '/csi.v1.Identity/Probe',
  '/csi.v1.Controller/CreateVolume',
  '/csi.v1.Controller/DeleteVolume',
  '/csi.v1.Controller/GetCapacity',
  '/csi.v1.Controller/ListVolumes',
  '/csi.v1.Controller/ControllerGetCapabilities',
  '/csi.v1.Controller/ControllerGetVolume',
  '/csi.v1.Controller/ControllerModifyVolume',
  '/csi.v1.Node/NodeGetInfo',
]);
