import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** One line for `sutler --help`. */
export const summary =
  "holds the driver's socket and passes CSI calls to it, unchanged, saying who made each status";

/** Every flag of the gateway. */
export const flags = defineFlags({
  ...processFlags,
  'csi-address': {
    type: 'string',
    default: '/run/csi/socket',
    help: "The driver's socket, a path or unix:///path. The gateway waits for it.",
    upstream: 'same',
  },
  listen: {
    type: 'strings',
    default: 'unix:///run/sutler/gateway.sock',
    help: 'Where callers reach the gateway: unix:///path (mode 0600) or dns:///host:port; several times for several doors. TCP beyond loopback asks for TLS.',
  },
  'tls-cert': {
    type: 'string',
    default: '',
    help: 'The gateway’s certificate, PEM, intermediates behind it. Turns on mutual TLS 1.3 for TCP. The three files are watched.',
  },
  'tls-key': { type: 'string', default: '', help: 'Its private key, PEM.' },
  'tls-client-ca': {
    type: 'string',
    default: '',
    help: 'Authorities that sign callers’ certificates, PEM.',
  },
  'tls-allowed-names': {
    type: 'strings',
    default: '',
    help: 'Callers that may call, by a subjectAltName of their certificate: DNS:name, URI:uri or IP:address, compared whole.',
  },
  insecure: {
    type: 'bool',
    default: false,
    help: 'Let TCP beyond loopback be plaintext: whoever reaches it may delete volumes.',
  },
  'max-in-flight': {
    type: 'strings',
    default: '500',
    help: 'Most calls of one method at the driver at once; the next one is refused, not forwarded. A number, and Method:number for single methods: 500,CreateVolume:50.',
  },
  'adaptive-limit': {
    type: 'bool',
    default: false,
    help: 'Below --max-in-flight, find how many calls of each method the driver takes well: fewer when it says ResourceExhausted or Unavailable or gets slow, more again when it does not.',
  },
  timeout: {
    type: 'durationMs',
    default: '10s',
    min: '1ms',
    help: "Budget of each Probe and of each question about the driver's identity.",
    upstream: 'same; here only for the gateway’s own calls, since callers bring their deadline',
  },
  'allow-all': {
    type: 'bool',
    default: false,
    help: 'Pass every unary method by its path, known or not. Otherwise only what sutler itself calls.',
  },
  'grace-period': {
    type: 'durationMs',
    default: '25s',
    min: '0s',
    help: 'After SIGTERM, time for calls under way to end. New ones are refused meanwhile.',
  },
  'max-message-bytes': {
    type: 'int',
    default: 64 * 1024 * 1024,
    min: 1024,
    max: 1024 * 1024 * 1024,
    help: 'Largest request or answer that passes.',
  },
});
