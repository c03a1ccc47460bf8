import { readFile } from 'node:fs/promises';
import { perDriver } from '../runtime/flags.ts';
import { GRACE_MS } from './lease-view.ts';

/** Flags that decide which of several ingest processes leads. */
export const electionFlags = perDriver({
  'leader-election': {
    type: 'bool',
    default: true,
    help:
      'Acquire a Lease before enqueuing. With false, ingest still writes the Lease: it tells ' +
      'workers which data of Redis counts.',
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
    help: 'How long after the last renewal another process may take over.',
    upstream: 'same',
  },
  'leader-election-renew-deadline': {
    type: 'durationMs',
    default: '10s',
    help: 'Time without a renewal after which a leader stops leading.',
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

/** How long a call may be at work after its deadline. ingest and jobs need the same value. */
export const doubtFlags = perDriver({
  'settle-time': {
    type: 'durationMs',
    default: '1m',
    help:
      'How long a driver may still work on a call after the call’s deadline. Before that, sutler ' +
      'does not believe a refusal, and does not delete the volume, because the call may still ' +
      'create it.',
  },
});

/** D: how long after a job was marked its call may be at work in the driver, in ms
 * (docs/leak-proof.md). */
export function doubtMsOf(flags: {
  readonly timeoutMs: number;
  readonly settleTimeMs: number;
}): number {
  return GRACE_MS + flags.timeoutMs + flags.settleTimeMs;
}

const SERVICE_ACCOUNT_NAMESPACE = '/var/run/secrets/kubernetes.io/serviceaccount/namespace';

/** Namespace of the driver's Lease: the flag, else POD_NAMESPACE, else the pod's own, else
 * "default".
 * @see csi-lib-utils leaderelection/leader_election.go inClusterNamespace */
export async function leaseNamespace(
  flag: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  if (flag !== '') return flag;
  const fromEnv = env['POD_NAMESPACE'] ?? '';
  if (fromEnv !== '') return fromEnv;
  const mounted = await readFile(SERVICE_ACCOUNT_NAMESPACE, 'utf8').catch(() => '');
  return mounted.trim() || 'default';
}
