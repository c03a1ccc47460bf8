import { getSingle, type HeaderPairs } from '../csi/grpc-wire.ts';
import { Code, FAILOVER_METADATA, NOT_AFTER_METADATA, POD_METADATA } from '../csi/status.ts';
import type { DriverCall, DriverCalls, Refusal } from '../driver/driver-calls.ts';
import type { RefusalReason } from '../driver/metrics.ts';
import { defaultMethods } from './flags.ts';
import type { GatewayOptions } from './gateway.ts';

/** The leading ingest probes each gateway twice a second (src/ingest/gateway-failover.ts). */
const FAILOVER_PROBE_MS = 2_000;

/** Decides which calls may come this far as the driver's calls. */
export class Admission {
  readonly #calls: DriverCalls;
  readonly #options: GatewayOptions;
  #isDraining = false;
  #failoverProbeMs = -Infinity;
  readonly #drainReported = new AbortController();

  constructor(calls: DriverCalls, options: GatewayOptions) {
    this.#calls = calls;
    this.#options = options;
  }

  get isDraining(): boolean {
    return this.#isDraining;
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
    const { allowAll, maxRequestBytes, pod = '' } = this.#options;
    const { path } = call;
    const refuse = (reason: RefusalReason, code: number, details: string): Refusal =>
      this.#calls.refuse(call, reason, code, details);
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
    if (!allowAll && !defaultMethods.has(path)) {
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
    if (!metadata.some(([name]) => name === FAILOVER_METADATA)) return;
    this.#failoverProbeMs = this.#options.clock.nowMs();
    if (this.#isDraining && this.#calls.busyVolumes === 0) this.#drainReported.abort();
  }
}

/** The time of sutler-not-after: Infinity without one, NaN if it is not one time. */
export function readNotAfterMs(metadata: HeaderPairs): number {
  if (!metadata.some(([name]) => name === NOT_AFTER_METADATA)) return Infinity;
  const text = getSingle(metadata, NOT_AFTER_METADATA) ?? '';
  return /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
}
