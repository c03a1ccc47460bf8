import type { ClientHttp2Session } from 'node:http2';
import type { DriverCapabilities } from '../csi/capabilities.ts';
import { Code, CsiError } from '../csi/status.ts';
import { formatAddress, type Address } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { callDriver, type DriverAnswer, type DriverRequest } from './driver-call.ts';
import {
  decodeControllerRpcs,
  decodePluginInfo,
  decodePluginServices,
  decodeProbeReady,
} from './identity-responses.ts';
import type { GatewayMetrics } from './metrics.ts';
import { openSession } from './open-session.ts';
import { ResetLimiter } from './reset-limiter.ts';
import { formatTimeout, frameMessage } from './grpc-wire.ts';

/** What a driver told about itself after its socket came up; forgotten when the socket goes. */
export interface DriverIdentity {
  readonly name: string;
  readonly vendorVersion: string;
  readonly capabilities: DriverCapabilities;
}

export interface DriverConnectionOptions {
  readonly address: Address;
  /** Budget of each Probe and of each question about the driver's identity; also of the
   * connection's set-up. */
  readonly probeTimeoutMs: number;
  /** Largest answer taken. */
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
  /** How often a driver that is ready is probed; 10 s where absent. */
  readonly probeIntervalMs?: number;
}

const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 500;
/** Upstream's ticker between Probes that were not answered with ready (spec 05 §6.4). */
const PROBE_RETRY_MS = 1_000;
/** A reason for waiting that lasts so long and was not told yet is told; one that comes and goes
 * while a driver restarts is not. */
const NEW_REASON_MS = 10_000;
/** Two of ten seconds each by default: longer than a driver that is only busy should need for a
 * Probe. */
const UNANSWERED_MAX = 2;

/** The driver's socket: found when it comes, probed, asked for its name, missed when it goes, found
 * again; for ever. It never gives up and never ends the process; `trouble` is what /readyz shows
 * meanwhile. */
export class DriverConnection {
  readonly #options: DriverConnectionOptions;
  readonly #stop = new AbortController();
  readonly #where: string;
  readonly #resets = new ResetLimiter();
  /** Ends the pause between two Probes. */
  #hurry: () => void = () => undefined;
  /** Questions in a row that met no answer in time, on this connection. */
  #unanswered = 0;
  #session: ClientHttp2Session | undefined;
  #probed = false;
  #identity: DriverIdentity | undefined;
  #trouble: string | undefined;
  #running: Promise<void> | undefined;

  constructor(options: DriverConnectionOptions) {
    this.#options = options;
    this.#where = formatAddress(options.address);
    this.#trouble = `not connected to ${this.#where} yet`;
  }

  /** Why the driver can't be used right now; undefined when it can. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Known from the first good Probe of a socket's life until the socket goes. */
  get identity(): DriverIdentity | undefined {
    return this.#identity;
  }

  /** Why a call can't be forwarded at this moment. Identity calls pass before the first good Probe,
   * so that a caller can watch a driver start. */
  findTrouble(path: string): string | undefined {
    if (this.#session === undefined || this.#session.closed)
      return `the driver is not connected: ${this.#trouble ?? this.#where}`;
    if (!this.#probed && !path.startsWith('/csi.v1.Identity/'))
      return `the driver is not ready: ${this.#trouble ?? 'no Probe was answered yet'}`;
    return undefined;
  }

  /** Sends one call over the present connection. Never rejects. */
  async send(request: DriverRequest): Promise<DriverAnswer> {
    const session = this.#session;
    if (session === undefined) {
      request.onEnd?.(Code.Unavailable);
      return {
        kind: 'not-sent',
        code: Code.Unavailable,
        details: `the driver is not connected: ${this.#trouble ?? ''}`,
      };
    }
    const { clock, metrics } = this.#options;
    const startedMs = clock.nowMs();
    metrics.changeInFlight(1);
    const answer = await callDriver(session, request, this.#resets);
    metrics.changeInFlight(-1);
    if (answer.kind === 'ambiguous' && answer.code === Code.DeadlineExceeded) this.#hurry();
    if (answer.kind !== 'not-sent') {
      const seconds = (clock.nowMs() - startedMs) / 1000;
      metrics.observeCall({
        driver: this.#identity?.name ?? '',
        path: request.path,
        code: answer.code,
        seconds,
        migrated: request.migrated ?? false,
      });
    }
    return answer;
  }

  /** Begins to look for the driver. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Stops looking and ends the connection; calls under way end ambiguously. */
  async close(): Promise<void> {
    this.#stop.abort();
    this.#session?.destroy();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { address, clock, log, maxMessageBytes, probeTimeoutMs } = this.#options;
    const { signal } = this.#stop;
    let retryMs = RETRY_FIRST_MS;
    /** What the log knows of this wait. */
    let told: { readonly reason: string; readonly atMs: number } | undefined;
    while (!signal.aborted) {
      const opened = await openSession(address, {
        timeoutMs: probeTimeoutMs,
        maxMessageBytes,
        signal,
      });
      if (typeof opened !== 'string') {
        retryMs = RETRY_FIRST_MS;
        await this.#live(opened);
        told = { reason: '', atMs: clock.nowMs() };
        continue;
      }
      this.#trouble = `waiting for the driver at ${this.#where}: ${opened}`;
      if (
        told === undefined ||
        (told.reason !== opened && clock.nowMs() - told.atMs >= NEW_REASON_MS)
      ) {
        told = { reason: opened, atMs: clock.nowMs() };
        log.info({ address: this.#where, reason: opened }, 'waiting for the driver');
      }
      await clock.sleep(retryMs, signal);
      retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
    }
  }

  /** One life of the socket, from connected to lost. */
  async #live(session: ClientHttp2Session): Promise<void> {
    const { log, metrics } = this.#options;
    const lost = new AbortController();
    const lose = (): void => lost.abort();
    session.once('close', lose);
    // Calls under way may still end well; new ones need a new connection, at once.
    session.once('goaway', lose);
    if (session.closed || session.destroyed) lose();
    this.#session = session;
    this.#probed = false;
    this.#unanswered = 0;
    this.#trouble = 'connected; Probe was not answered yet';
    metrics.countDriverConnect();
    log.debug({ address: this.#where }, 'connected to the driver');
    await this.#attend(session, lost.signal);
    this.#session = undefined;
    this.#identity = undefined;
    this.#probed = false;
    this.#trouble = `lost the driver at ${this.#where}`;
    metrics.setDriverReady(false);
    if (!session.closed) session.close();
    if (!this.#stop.signal.aborted)
      log.warn({ address: this.#where }, 'lost the driver, reconnecting');
  }

  /** Probes until the connection is lost, or of no use: one on which nothing is answered may be the
   * connection's fault, not the driver's. */
  async #attend(session: ClientHttp2Session, lost: AbortSignal): Promise<void> {
    const { log, metrics, probeIntervalMs } = this.#options;
    while (!lost.aborted) {
      const wrong = await this.#examine(lost);
      // A session that met headers beyond its limits is closed without an event.
      if (lost.aborted || session.closed) return;
      if (this.#unanswered >= UNANSWERED_MAX) {
        log.warn(
          { address: this.#where, reason: wrong },
          'the driver answers nothing on this connection: trying a new one',
        );
        return;
      }
      if (wrong !== this.#trouble) {
        if (wrong === undefined) {
          const { name, vendorVersion, capabilities } = this.#identity ?? {
            name: '',
            vendorVersion: '',
            capabilities: undefined,
          };
          log.info(
            {
              driver: name,
              version: vendorVersion,
              controller: [...(capabilities?.controller ?? [])],
            },
            'the driver is ready',
          );
        } else {
          log.warn({ address: this.#where, reason: wrong }, 'the driver is not ready');
        }
      }
      this.#trouble = wrong;
      metrics.setDriverReady(wrong === undefined);
      await this.#pause(wrong === undefined ? (probeIntervalMs ?? 10_000) : PROBE_RETRY_MS, lost);
    }
  }

  /** Ends early when a call met no answer in time: then one would like to know. */
  async #pause(ms: number, lost: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    await clock.sleep(Math.min(ms, PROBE_RETRY_MS), lost);
    if (ms <= PROBE_RETRY_MS) return;
    const over = new AbortController();
    const end = (): void => over.abort();
    lost.addEventListener('abort', end, { once: true });
    this.#hurry = end;
    if (!lost.aborted) await clock.sleep(ms - PROBE_RETRY_MS, over.signal);
    this.#hurry = () => undefined;
    lost.removeEventListener('abort', end);
  }

  /** What is wrong with the driver, by Probe and, once in a socket's life, by its name and
   * capabilities. */
  async #examine(lost: AbortSignal): Promise<string | undefined> {
    try {
      const ready = await this.#ask('/csi.v1.Identity/Probe', decodeProbeReady, lost);
      if (ready === false) return 'the driver answers Probe with ready=false';
      this.#probed = true;
      const identity = this.#identity ?? (await this.#identify(lost));
      if (identity.name === '') return 'the driver gives no name: its GetPluginInfo must name it';
      this.#identity = identity;
      return undefined;
    } catch (error) {
      if (error instanceof CsiError) return `${error.method}: ${error.message}`;
      throw error;
    }
  }

  async #identify(lost: AbortSignal): Promise<DriverIdentity> {
    const { name, vendorVersion } = await this.#ask(
      '/csi.v1.Identity/GetPluginInfo',
      decodePluginInfo,
      lost,
    );
    const plugin = await this.#ask(
      '/csi.v1.Identity/GetPluginCapabilities',
      decodePluginServices,
      lost,
    );
    // A driver that runs beside the nodes only has no Controller service to ask.
    const controller = plugin.has('CONTROLLER_SERVICE')
      ? await this.#ask('/csi.v1.Controller/ControllerGetCapabilities', decodeControllerRpcs, lost)
      : new Set<string>();
    return { name, vendorVersion, capabilities: { plugin, controller } };
  }

  /** One question with an empty request, as all of them are. */
  async #ask<T>(path: string, read: (response: Uint8Array) => T, lost: AbortSignal): Promise<T> {
    const { probeTimeoutMs, maxMessageBytes } = this.#options;
    const answer = await this.send({
      path,
      headers: {
        'content-type': 'application/grpc',
        'grpc-timeout': formatTimeout(probeTimeoutMs),
      },
      body: frameMessage(new Uint8Array(0)),
      maxBytes: maxMessageBytes,
      timeoutMs: probeTimeoutMs,
      signal: lost,
    });
    const isLate = answer.kind === 'ambiguous' && answer.code === Code.DeadlineExceeded;
    this.#unanswered = isLate ? this.#unanswered + 1 : 0;
    if (answer.kind !== 'driver' || answer.code !== Code.OK)
      throw new CsiError({ code: answer.code, details: answer.details, method: path });
    try {
      return read(answer.body.subarray(5));
    } catch (cause) {
      throw new CsiError(
        { code: Code.Internal, details: 'the answer does not decode', method: path },
        { cause },
      );
    }
  }
}
