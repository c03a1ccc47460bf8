import { defineFlags } from '../runtime/flags.ts';

/** Which of several ingest processes enqueues. */
export const electionFlags = defineFlags({
  'leader-election': {
    type: 'bool',
    default: true,
    help: 'Hold a Lease before enqueuing.',
    upstream: 'same; default false',
  },
  'leader-election-namespace': {
    type: 'string',
    default: '',
    help: 'Namespace of the Lease. Empty: POD_NAMESPACE, the service account’s, or default.',
    upstream: 'same',
  },
  'leader-election-lease-duration': {
    type: 'durationMs',
    default: '15s',
    help: 'Time after the last renewal at which others may take over.',
    upstream: 'same',
  },
  'leader-election-renew-deadline': {
    type: 'durationMs',
    default: '10s',
    help: 'Time after which a leader that cannot renew gives up.',
    upstream: 'same',
  },
  'leader-election-retry-period': {
    type: 'durationMs',
    default: '5s',
    help: 'Pause between tries to acquire or renew.',
    upstream: 'same',
  },
  'leader-election-labels': {
    type: 'labels',
    help: 'Labels of the Lease: key:value,key2:value2.',
    upstream: 'same',
  },
});
