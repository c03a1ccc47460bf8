import { getSingle, type HeaderPairs } from '../csi/grpc-wire.ts';
import { Code, FAILOVER_METADATA, NOT_AFTER_METADATA, POD_METADATA } from '../csi/status.ts';
import type { DriverCall, DriverCalls, Refusal } from '../driver/driver-calls.ts';
import type { RefusalReason } from '../driver/metrics.ts';
import type { Clock } from '../runtime/clock.ts';

export interface AdmissionOptions {
  readonly calls: DriverCalls;
  /** Method paths that may pass; undefined for all of CSI. */
  readonly allowed: ReadonlySet<string> | undefined;
  /** UID of the pod that this gateway is in; '' if it does not know. */
  readonly pod: string;
  readonly maxRequestBytes: number;
  readonly clock: Clock;
}

/** The leading ingest probes each gateway twice a second (src/ingest/gateway-failover.ts). */
const FAILOVER_PROBE_MS = 2_000;

/** Decides which calls may come this far as the driver's calls. */
export class Admission {
  readonly #options: AdmissionOptions;
  #isDraining = false;
  #failoverProbeMs = -Infinity;
  readonly #drainReported = new AbortController();

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /** Refuses all further calls. */
  drain(): void {
    this.#isDraining = true;
  }

  /** Whether an ingest probes this gateway to decide about failover. */
  get isProbedForFailover(): boolean {
    return this.#options.clock.nowMs() - this.#failoverProbeMs < FAILOVER_PROBE_MS;
  }

  /** Aborts when the answer to such a probe has reported that no call is under way any more. */
  get drainReported(): AbortSignal {
    return this.#drainReported.signal;
  }

  /** Why a call is not forwarded; undefined if it may pass.
   * @param metadata  all of the caller's, sutler's own too
   * @param hasEnded  whether the caller's certificate is not valid any more */
  refuse(call: DriverCall, metadata: HeaderPairs, hasEnded: boolean): Refusal | undefined {
    const { allowed, calls, maxRequestBytes, pod } = this.#options;
    const { path } = call;
    const refuse = (reason: RefusalReason, code: number, details: string): Refusal =>
      calls.refuse(call, reason, code, details);
    if (hasEnded) {
      const why = 'the certificate has ended or is of an authority that is not trusted any more';
      return refuse('caller', Code.Unavailable, `not forwarded: ${why}; connect again`);
    }
    if (call.message.length > maxRequestBytes) {
      const why = `the request of ${path} is larger than ${maxRequestBytes} bytes`;
      const details = `not forwarded: ${why}: raise --max-request-bytes`;
      return refuse('too-large', Code.ResourceExhausted, details);
    }
    // An IP address may be another gateway's by the time it is dialled. A driver there would say of
    // a deletion that it succeeded, since it has no such volume.
    const meant = getSingle(metadata, POD_METADATA) ?? pod;
    if (pod !== '' && meant !== pod) {
      const details = `not forwarded: it is for pod ${meant.slice(0, 253)}, and this is ${pod}`;
      return refuse('other-pod', Code.Unavailable, details);
    }
    if (allowed !== undefined && !allowed.has(path)) {
      const remedy = 'its --allow-all lets every method of CSI pass';
      const details = `${path} does not pass this gateway (${remedy})`;
      return refuse('method', Code.Unimplemented, details);
    }
    if (Number.isNaN(call.notAfterMs)) {
      const details = `${NOT_AFTER_METADATA} must be one Unix time in milliseconds`;
      return refuse('malformed', Code.InvalidArgument, details);
    }
    this.#noteFailoverProbe(metadata);
    if (!this.#isDraining) return undefined;
    return refuse('draining', Code.Unavailable, 'the gateway is shutting down');
  }

  #noteFailoverProbe(metadata: HeaderPairs): void {
    const { calls, clock } = this.#options;
    if (!metadata.some(([name]) => name === FAILOVER_METADATA)) return;
    this.#failoverProbeMs = clock.nowMs();
    if (this.#isDraining && calls.busyVolumes === 0) this.#drainReported.abort();
  }
}

/** The time of sutler-not-after: Infinity without one, NaN if it is not one time. */
export function readNotAfterMs(metadata: HeaderPairs): number {
  if (!metadata.some(([name]) => name === NOT_AFTER_METADATA)) return Infinity;
  const text = getSingle(metadata, NOT_AFTER_METADATA) ?? '';
  return /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
}
