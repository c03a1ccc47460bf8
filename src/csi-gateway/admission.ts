import { getSingle, type HeaderPairs } from '../csi/grpc-wire.ts';
import { Code, NOT_AFTER_METADATA, POD_METADATA } from '../csi/status.ts';
import type { DriverCall, Refusal } from '../driver/driver-calls.ts';
import type { RefusalReason } from '../driver/metrics.ts';
import { defaultMethods } from './flags.ts';

/** Which calls a gateway lets pass. */
export interface AdmissionRules {
  /** Whether all methods of CSI pass, or only defaultMethods. */
  readonly allowAll: boolean;
  readonly maxRequestBytes: number;
  /** UID of the pod that the gateway is in. */
  readonly pod?: string;
}

/** Decides why a call is not forwarded; undefined if it may go on to the driver's calls.
 * @param metadata      the caller's, including sutler's own
 * @param now.hasEnded  whether the caller's certificate has expired or lost its authority */
export function findRefusal(
  { path, message, notAfterMs }: DriverCall,
  metadata: HeaderPairs,
  { allowAll, maxRequestBytes, pod = '' }: AdmissionRules,
  now: { readonly hasEnded: boolean; readonly isDraining: boolean },
): Pick<Refusal, 'reason' | 'code' | 'details'> | undefined {
  const refuse = (reason: RefusalReason, code: number, details: string) => ({
    reason,
    code,
    details,
  });
  if (now.hasEnded) {
    const why = 'the certificate has expired, or its authority is no longer trusted';
    return refuse('caller', Code.Unavailable, `not forwarded: ${why}; connect again`);
  }
  if (message.length > maxRequestBytes) {
    const why = `the request of ${path} is larger than ${maxRequestBytes} bytes`;
    const details = `not forwarded: ${why}: raise --max-request-bytes`;
    return refuse('too-large', Code.ResourceExhausted, details);
  }
  // An IP address may move to another gateway before the client connects. Its driver would report a
  // deletion as done, because it has no such volume.
  const meant = getSingle(metadata, POD_METADATA) ?? pod;
  if (pod !== '' && meant !== pod) {
    const details = `not forwarded: the call is for pod ${meant.slice(0, 253)}, this is ${pod}`;
    return refuse('other-pod', Code.Unavailable, details);
  }
  if (!allowAll && !defaultMethods.has(path)) {
    const details = `this gateway does not forward ${path}: start it with --allow-all`;
    return refuse('method', Code.Unimplemented, details);
  }
  if (Number.isNaN(notAfterMs)) {
    const details = `${NOT_AFTER_METADATA} must be one Unix time in milliseconds`;
    return refuse('malformed', Code.InvalidArgument, details);
  }
  if (!now.isDraining) return undefined;
  return refuse('draining', Code.Unavailable, 'the gateway is shutting down');
}

/** Reads the time of sutler-not-after: Infinity if absent, NaN unless it is exactly one time. */
export function readNotAfterMs(metadata: HeaderPairs): number {
  if (!metadata.some(([name]) => name === NOT_AFTER_METADATA)) return Infinity;
  const text = getSingle(metadata, NOT_AFTER_METADATA) ?? '';
  return /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
}
