import type { Counter, Gauge, Registry } from 'prom-client';
import { CsiError } from '../csi/status.ts';
import type { GatewayClient, GatewayPool } from '../gateway-client/pool.ts';
import { doubtMsOf } from '../election/flags.ts';
import {
  type ActiveGateway,
  type NamedGateway,
  redisActiveGateway,
} from '../gateway-client/active-gateway.ts';
import { systemClock } from '../runtime/clock.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn } from '../runtime/metrics.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import {
  decideFailover,
  type FailoverDecision,
  type GatewayHealth,
  healthAfterProbe,
  type ProbeResult,
} from './decide-failover.ts';
import type { DriverDeps } from './driver-deps.ts';

/* Probes the gateways of a driver and stores in Redis which is active, that is, gets the controller
 * calls. decide-failover.ts makes the decision. */

export interface GatewayFailoverOptions {
  readonly pool: Pick<GatewayPool, 'gateways' | 'soleAddress' | 'prefer'>;
  readonly place: RedisPlace;
  /** Deadline of one driver call, and of each probe. */
  readonly timeoutMs: number;
  /** How long a call may be at work after its job was marked. */
  readonly doubtMs: number;
  /** Called right before each write. */
  readonly isLeading: () => boolean;
  readonly log: Logger;
  readonly metrics: Registry;
  /** Time between two probes of a gateway. */
  readonly periodMs?: number;
}

type Move = Omit<Extract<FailoverDecision, { kind: 'move' }>, 'kind'>;

const PERIOD_MS = 500;
/** Period with a single address in --gateway. It is not probed; each step only names it again if
 * Redis has lost it. After a loss that ingest noticed, `checkNow` is called. */
const SINGLE_PERIOD_MS = 10_000;

/** Probes every gateway twice a second while this ingest leads, and names the active one. The only
 * address of --gateway is named at once and not probed. */
export class GatewayFailover {
  readonly #options: GatewayFailoverOptions;
  readonly #driver: string;
  readonly #periodMs: number;
  readonly #stored: ActiveGateway;
  readonly #active: Gauge<'driver' | 'gateway'>;
  readonly #moves: Counter<'driver'>;
  /** By address: the gateways of the pool, and the active gateway if its pod is gone. */
  readonly #health = new Map<string, GatewayHealth>();
  /** Addresses with a probe under way. */
  readonly #probing = new Set<string>();
  readonly #loop: PollLoop;
  /** What this leader last read from Redis or wrote to it. If Redis loses it, the leader names the
   * same gateway again, because calls may be under way there. */
  #lastNamed: NamedGateway | undefined;
  #trouble: string | undefined;

  constructor(options: GatewayFailoverOptions) {
    const { place, metrics, log, periodMs = PERIOD_MS } = options;
    const { driver } = place;
    this.#options = options;
    this.#driver = driver;
    this.#periodMs = periodMs;
    this.#stored = redisActiveGateway(place);
    const { counter, gauge } = metricsIn(metrics);
    this.#active = gauge(
      'sutler_active_gateway',
      '1 for the gateway that gets the driver’s controller calls, 0 for its other gateways.',
      ['driver', 'gateway'],
    );
    this.#moves = counter(
      'sutler_active_gateway_moves_total',
      'Times that a driver’s active gateway changed.',
      ['driver'],
    );
    this.#moves.inc({ driver }, 0);
    this.#loop = new PollLoop({
      step: (signal) => this.#step(signal),
      onError: (error) =>
        log.debug({ err: error }, 'could not decide on the active gateway; trying again'),
      periodMs: options.pool.soleAddress === '' ? periodMs : SINGLE_PERIOD_MS,
    });
  }

  /** For /readyz: why no gateway is active, or what is wrong with the active one. Always undefined
   * while another ingest leads. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Probes and decides now. */
  checkNow(): void {
    this.#loop.runNow();
  }

  close(): void {
    void this.#loop.stop();
    this.#show('');
  }

  async #step(signal: AbortSignal): Promise<void> {
    const { isLeading, pool } = this.#options;
    if (!isLeading()) return this.#reset();
    this.#followPool();
    if (pool.soleAddress === '') {
      // A gateway that does not answer must not delay the decision. Its probe goes on, and a later
      // step uses the result.
      const probes = Promise.all(pool.gateways.map((gateway) => this.#probe(gateway)));
      await Promise.race([probes, systemClock.sleep(this.#periodMs)]);
    }
    if (!signal.aborted) this.#trouble = await this.#decide();
  }

  /** Forgets what this ingest saw while it led: it would be out of date in the next term. */
  #reset(): void {
    this.#show('');
    this.#health.clear();
    this.#lastNamed = undefined;
    this.#trouble = undefined;
  }

  /** Adds new gateways, and drops gateways that are gone. An active gateway that is gone stays, as
   * unreachable. */
  #followPool(): void {
    const { pool } = this.#options;
    const present = new Set(pool.gateways.map(({ address }) => address));
    for (const address of present)
      if (!this.#health.has(address)) this.#health.set(address, { kind: 'unknown' });
    for (const [address, health] of this.#health) {
      if (present.has(address)) continue;
      if (address !== this.#lastNamed?.endpoint) {
        this.#health.delete(address);
        this.#active.remove({ driver: this.#driver, gateway: address });
      } else {
        const gone = { kind: 'failed', reason: 'its pod is gone' } as const;
        this.#health.set(address, healthAfterProbe(health, gone, Date.now()));
      }
    }
  }

  async #probe(gateway: GatewayClient): Promise<void> {
    const { address } = gateway;
    if (this.#probing.has(address)) return;
    this.#probing.add(address);
    const startedMs = Date.now();
    const result = await sendProbe(gateway, this.#driver, this.#options.timeoutMs);
    this.#probing.delete(address);
    const before = this.#healthOf(address);
    const health = healthAfterProbe(before, result, startedMs);
    this.#health.set(address, health);
    if (before.kind !== health.kind)
      this.#options.log.debug({ gateway: address, ...health }, 'health of a gateway changed');
  }

  /** @returns what is wrong */
  async #decide(): Promise<string | undefined> {
    const { isLeading, pool, doubtMs, timeoutMs } = this.#options;
    const stored = await this.#stored.read();
    const last = this.#lastNamed;
    // A lower version: Redis was emptied, or restored from the past.
    const isLost = last !== undefined && stored.version < last.version;
    const before = isLost ? last.endpoint : stored.endpoint;
    const nowMs = Date.now();
    const health = this.#health;
    const decision = decideFailover({ health, active: before, nowMs, timeoutMs, doubtMs });
    const keep = { to: before, waitMs: 0, why: 'Redis lost it' };
    const move = decision.kind === 'move' ? decision : keep;
    const { to: endpoint, waitMs } = move;
    let { version } = stored;
    if (decision.kind === 'move' || endpoint !== stored.endpoint) {
      if (!isLeading() || !(await this.#stored.name({ version, endpoint, waitMs })))
        return this.#trouble;
      version += 1;
      this.#log(before, move);
    }
    this.#lastNamed = { endpoint, version };
    this.#show(endpoint);
    pool.prefer(endpoint);
    return this.#describeTrouble(endpoint, decision);
  }

  #log(previous: string, { to: gateway, waitMs, why }: Move): void {
    const { log } = this.#options;
    const fields = { driver: this.#driver, gateway, why, waitMs };
    if (previous === '') return log.info(fields, 'active gateway named');
    if (previous === gateway)
      return log.warn(fields, 'Redis lost the active gateway: named it again');
    log.warn({ ...fields, previous }, 'active gateway moved');
    this.#moves.inc({ driver: this.#driver });
  }

  /** @param active  '' = remove this driver's series; other drivers of the process keep theirs */
  #show(active: string): void {
    const driver = this.#driver;
    for (const gateway of this.#health.keys())
      if (active === '') this.#active.remove({ driver, gateway });
      else this.#active.set({ driver, gateway }, Number(gateway === active));
  }

  #describeTrouble(address: string, decision: FailoverDecision): string | undefined {
    const health = this.#healthOf(address);
    if (health.kind === 'unreachable')
      return `the active gateway ${address} is unreachable: ${health.reason}`;
    if (decision.kind !== 'none') return undefined;
    return address === ''
      ? `no gateway is active: ${decision.why}`
      : `the active gateway ${address} has no successor: ${decision.why}`;
  }

  #healthOf(address: string): GatewayHealth {
    return this.#health.get(address) ?? { kind: 'unknown' };
  }
}

/** Calls Probe and GetPluginInfo through the gateway. A gateway of another driver, which is a
 * mistake in --gateway, counts as failed. */
async function sendProbe(
  { client }: GatewayClient,
  driver: string,
  timeoutMs: number,
): Promise<ProbeResult> {
  try {
    const { ready } = await client.probe({ timeoutMs });
    if (ready === false) throw new Error('its driver answers Probe with ready=false');
    const { name } = await client.getPluginInfo({ timeoutMs });
    if (name !== driver)
      throw new Error(`its driver is ${name}, not ${driver}; name the right gateway or Service`);
    return { kind: 'reachable' };
  } catch (error) {
    if (error instanceof CsiError && error.draining !== undefined)
      return { kind: 'draining', running: error.draining };
    return { kind: 'failed', reason: messageOf(error) };
  }
}

/** Starts the failover of a driver's gateways. */
export function openFailover({
  context,
  connections,
  place,
  isLeading,
}: DriverDeps): GatewayFailover {
  const { flags, closers, health, log, metrics } = context;
  const failover = new GatewayFailover({
    pool: connections.gateways,
    place,
    timeoutMs: flags.timeoutMs,
    doubtMs: doubtMsOf(flags),
    isLeading,
    log,
    metrics,
  });
  closers.add('gateway failover', () => failover.close());
  health.ready('active-gateway', () => failover.trouble);
  return failover;
}
