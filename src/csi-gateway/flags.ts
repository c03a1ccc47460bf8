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
      'Allowed callers, by a subjectAltName of their certificate: DNS:name, URI:uri or ' +
      'IP:address. Names are compared as a whole.',
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
      'Most calls at the driver at once, not counting Identity calls; others are refused. This ' +
      'only protects the driver: limit the work by --max-jobs-in-flight of ingest.',
  },
  'pod-uid': {
    type: 'string',
    default: '',
    help:
      'UID of the gateway’s pod, for callers with --gateway-service. The gateway refuses calls ' +
      'for another pod, which had this IP address before. Empty: not checked.',
  },
  timeout: {
    type: 'durationMs',
    default: '10s',
    min: '1ms',
    help: 'Deadline of each Probe and each GetPluginInfo of the gateway.',
    upstream: 'same, but only for the gateway’s own calls: callers set their own deadline',
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
    help: 'Time for calls under way to end after SIGTERM. Meanwhile the gateway refuses new calls.',
  },
  'max-message-bytes': {
    type: 'int',
    default: 64 * 1024 * 1024,
    min: 1024,
    max: 1024 * 1024 * 1024,
    help: 'Largest response with a list, such as ListVolumes’. Other responses: at most 4 MiB.',
  },
  'max-request-bytes': {
    type: 'int',
    default: 4 * 1024 * 1024,
    min: 1024,
    max: 1024 * 1024 * 1024,
    help: 'Largest request. gRPC servers accept 4 MiB by default.',
  },
});

/** The methods that pass without --allow-all: those that sutler calls. Other sidecars (publishing,
 * snapshots, expansion) connect to the driver's socket directly. */
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
