import type { ClientHttp2Session } from 'node:http2';
import { CsiCalls, type EncodedCall } from '../csi/csi-calls.ts';
import type { GetPluginInfoResponse } from '../csi/generated/csi_pb.ts';
import { Code, CsiError } from '../csi/status.ts';
import { type Address, formatAddress } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';
import { callUnary, type Peer, type UnaryAnswer, type UnaryRequest } from '../csi/unary-call.ts';
import type { DriverMetrics } from './metrics.ts';
import { openSession } from '../csi/open-session.ts';

export interface DriverConnectionOptions {
  readonly address: Address;
  /** Time to set up the connection, and time for each Probe and GetPluginInfo. */
  readonly probeTimeoutMs: number;
  /** Largest response accepted. */
  readonly maxMessageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: DriverMetrics;
  /** Interval between Probes of a driver that is ready; 10 s if absent. */
  readonly probeIntervalMs?: number | undefined;
  /** Called whenever `trouble` has ended. */
  readonly onReady?: () => void;
}

const IDENTITY = '/csi.v1.Identity/';
const RECONNECT_MIN_MS = 50;
const RECONNECT_MAX_MS = 500;
/** Interval between Probes of a driver that is not ready, as in csi-lib-utils rpc/common.go
 * ProbeForever. */
const PROBE_RETRY_MS = 1_000;
/** After this many calls in a row without a response in time, the connection is replaced. By
 * default that takes twice ten seconds, longer than a busy driver should need for a Probe. */
const MAX_UNANSWERED = 2;

/** Keeps a connection to the driver's socket. States until it is closed:
 * - waiting: there is no session. It tries to connect every 50 to 500 ms. Then `connected`.
 * - connected: no Probe has succeeded on this session. It forwards only Identity calls, so that
 *   callers can watch a driver start. Then `probed`.
 * - probed: it forwards all calls, even if a later Probe fails.
 *
 * If a session closes, gets a GOAWAY or does not answer, the state is `waiting` again.
 *
 * `trouble` is undefined only while the latest Probe succeeded and the name is known. */
export class DriverConnection {
  readonly #options: DriverConnectionOptions;
  readonly #stop = new AbortController();
  readonly #address: string;
  readonly #peer: Peer;
  /** Calls of this class itself. */
  readonly #csi: CsiCalls;
  /** Own calls in a row without a response in time, on this session. */
  #unanswered = 0;
  #session: ClientHttp2Session | undefined;
  #isProbed = false;
  /** Known after the first successful Probe of a session, until the session ends. */
  #identity: GetPluginInfoResponse | undefined;
  #trouble: string | undefined;
  #running: Promise<void> | undefined;
  readonly #outage: Outage;
  /** The last facts about the driver in the log. */
  #shown = '';

  constructor(options: DriverConnectionOptions) {
    this.#options = options;
    this.#outage = new Outage(options.log);
    this.#address = formatAddress(options.address);
    this.#peer = {
      name: 'the driver',
      headers: {},
      maxBytes: options.maxMessageBytes,
      ifLarger: ': raise --max-message-bytes',
    };
    const { clock } = options;
    this.#csi = new CsiCalls((call) => this.#sendOwn(call), { clock, showsShortSecrets: false });
    this.#trouble = `not connected to ${this.#address} yet`;
  }

  /** Why the driver is not ready; undefined if it is. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Why a call of this path can't be forwarded now; undefined if it can. */
  findTrouble(path: string): string | undefined {
    if (this.#session === undefined || this.#session.closed)
      return `the driver is not connected: ${this.#trouble ?? this.#address}`;
    if (!this.#isProbed && !path.startsWith(IDENTITY))
      return `the driver is not ready: ${this.#trouble ?? 'no Probe was answered yet'}`;
    return undefined;
  }

  /** Sends one call to the driver. Never rejects.
   * @param migrated  for metrics: whether the volume comes from an in-tree plug-in */
  async send(request: UnaryRequest, migrated: boolean): Promise<UnaryAnswer> {
    const session = this.#session;
    if (session === undefined) {
      const details = `the driver is not connected: ${this.#trouble ?? ''}`;
      return { kind: 'not-sent', code: Code.Unavailable, details };
    }
    const { clock, metrics } = this.#options;
    const startedMs = clock.nowMs();
    metrics.changeInFlight(1);
    const answer = await callUnary(session, request, this.#peer);
    metrics.changeInFlight(-1);
    const { kind, code } = answer;
    if (kind !== 'not-sent') {
      const seconds = (clock.nowMs() - startedMs) / 1000;
      const driver = this.#identity?.name ?? '';
      metrics.observeCall({ driver, path: request.path, code, seconds, migrated });
    }
    return answer;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Ends the connection. Calls under way end as ambiguous. */
  async close(): Promise<void> {
    this.#stop.abort();
    this.#outage.forget();
    this.#session?.destroy();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { address, clock, maxMessageBytes, probeTimeoutMs: timeoutMs } = this.#options;
    const { signal } = this.#stop;
    let retryMs = RECONNECT_MIN_MS;
    while (!signal.aborted) {
      const opened = await openSession(address, { timeoutMs, maxMessageBytes, signal });
      if (typeof opened !== 'string') {
        retryMs = RECONNECT_MIN_MS;
        await this.#useSession(opened);
        continue;
      }
      this.#trouble = `waiting for the driver at ${this.#address}: ${opened}`;
      this.#logTrouble(opened);
      await clock.sleep(retryMs, signal);
      retryMs = Math.min(retryMs * 2, RECONNECT_MAX_MS);
    }
  }

  /** Uses a session until it is lost or replaced. */
  async #useSession(session: ClientHttp2Session): Promise<void> {
    const { log, metrics } = this.#options;
    const lost = new AbortController();
    const lose = (): void => lost.abort();
    session.once('close', lose);
    // After a GOAWAY, calls under way may still succeed; new calls need a new session at once.
    session.once('goaway', lose);
    if (session.closed || session.destroyed) lose();
    this.#session = session;
    this.#isProbed = false;
    this.#unanswered = 0;
    this.#trouble = 'connected; Probe was not answered yet';
    metrics.countDriverConnect();
    log.debug({ address: this.#address }, 'connected to the driver');
    await this.#probeUntilLost(session, lost.signal);
    this.#session = undefined;
    this.#identity = undefined;
    this.#isProbed = false;
    this.#trouble = `lost the driver at ${this.#address}`;
    metrics.setDriverReady(false);
    if (!session.closed) session.close();
    if (!this.#stop.signal.aborted) this.#logTrouble('the connection was lost');
  }

  /** Probes until the session is lost. Also returns if it answers nothing, because the connection
   * may be at fault and not the driver. */
  async #probeUntilLost(session: ClientHttp2Session, lost: AbortSignal): Promise<void> {
    const { clock, log, probeIntervalMs = 10_000 } = this.#options;
    while (!lost.aborted) {
      const trouble = await this.#checkDriver(lost);
      // A session closes without an event when headers exceed its limits.
      if (lost.aborted || session.closed) return;
      if (this.#unanswered >= MAX_UNANSWERED) {
        log.warn(
          { address: this.#address, reason: trouble },
          'the driver does not answer on this connection; trying a new one',
        );
        return;
      }
      this.#setTrouble(trouble);
      await clock.sleep(trouble === undefined ? probeIntervalMs : PROBE_RETRY_MS, lost);
    }
  }

  #setTrouble(trouble: string | undefined): void {
    if (trouble === this.#trouble) return;
    this.#trouble = trouble;
    this.#options.metrics.setDriverReady(trouble === undefined);
    if (trouble !== undefined) return this.#logTrouble(trouble);
    const { name, vendorVersion } = this.#identity ?? {};
    const facts = { driver: name, version: vendorVersion };
    const shown = JSON.stringify(facts);
    this.#outage.ended(facts, 'the driver is ready', shown !== this.#shown);
    this.#shown = shown;
    this.#options.onReady?.();
  }

  #logTrouble(reason: string): void {
    this.#outage.met(reason, { address: this.#address, reason }, 'the driver is not ready');
  }

  /** Sends a Probe and, once per session, GetPluginInfo.
   * @returns why the driver is not ready */
  async #checkDriver(lost: AbortSignal): Promise<string | undefined> {
    const settings = { timeoutMs: this.#options.probeTimeoutMs, signal: lost };
    try {
      // As in upstream, a driver that omits the field is ready.
      const { ready = true } = await this.#csi.probe(settings);
      if (!ready) return 'the driver answers Probe with ready=false';
      this.#isProbed = true;
      const identity = this.#identity ?? (await this.#csi.getPluginInfo(settings));
      if (identity.name === '') return 'the driver has no name: its GetPluginInfo must return one';
      this.#identity = identity;
      return undefined;
    } catch (error) {
      if (error instanceof CsiError) return `${error.method}: ${error.message}`;
      throw error;
    }
  }

  async #sendOwn({ path, message, settings }: EncodedCall): Promise<Uint8Array> {
    const { timeoutMs, signal } = settings;
    const answer = await this.send({ path, headers: {}, message, timeoutMs, signal }, false);
    const { kind, code, details } = answer;
    const isLate = kind === 'ambiguous' && code === Code.DeadlineExceeded;
    this.#unanswered = isLate ? this.#unanswered + 1 : 0;
    if (kind === 'answered' && code === Code.OK) return answer.message;
    throw new CsiError({ code, details, method: path });
  }
}
