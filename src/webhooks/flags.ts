import { defineFlags } from '../runtime/flags.ts';

/** Flags of the servers for webhooks. */
export const webhookFlags = defineFlags({
  'webhook-address': {
    type: 'string',
    default: '',
    help:
      'Listen address of POST /events, which takes events about claims and volumes from Knative, ' +
      'Argo Events and others. Empty: none. Beyond loopback it needs --webhook-token-file, ' +
      '--webhook-signing-key-file or --webhook-tls-client-ca.',
  },
  'webhook-tls-cert': {
    type: 'string',
    default: '',
    help:
      'PEM file with the certificate of --webhook-address, followed by intermediates. Turns on ' +
      'TLS 1.3. Changes of the TLS files take effect at once.',
  },
  'webhook-tls-key': {
    type: 'string',
    default: '',
    help: 'PEM file with the private key of --webhook-tls-cert.',
  },
  'webhook-tls-client-ca': {
    type: 'string',
    default: '',
    help: 'PEM file with the authorities that sign senders’ certificates.',
  },
  'webhook-allowed-names': {
    type: 'strings',
    default: '',
    help:
      'Senders that may send, by a subjectAltName of their certificate, compared as a whole: ' +
      'DNS:name, URI:uri or IP:address.',
  },
  'webhook-token-file': {
    type: 'string',
    default: '',
    help:
      'File with the bearer tokens of senders: one a line, then optionally the name of the ' +
      'sender. Changes take effect at once.',
  },
  'webhook-signing-key-file': {
    type: 'string',
    default: '',
    help:
      'File with the keys of senders that sign by Standard Webhooks (whsec_…): one a line, then ' +
      'optionally the name of the sender. Changes take effect at once.',
  },
  'admission-address': {
    type: 'string',
    default: '',
    help:
      'Listen address of POST /admission, for a ValidatingWebhookConfiguration: ingest allows ' +
      'every request, and learns of the change. Empty: none. Beyond loopback it needs ' +
      '--admission-tls-cert.',
  },
  'admission-tls-cert': {
    type: 'string',
    default: '',
    help: 'PEM file with the certificate of --admission-address, followed by intermediates.',
  },
  'admission-tls-key': {
    type: 'string',
    default: '',
    help: 'PEM file with the private key of --admission-tls-cert.',
  },
  'admission-tls-client-ca': {
    type: 'string',
    default: '',
    help:
      'PEM file with the authorities that sign the API server’s client certificate. Empty: ' +
      'no certificate is needed.',
  },
});
