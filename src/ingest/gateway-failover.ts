import { Counter, Gauge } from 'prom-client';
import type { Registry } from 'prom-client';
import type { Gateway, GatewayPool } from '../gateway-client/pool.ts';
import { CsiError, FAILOVER_METADATA } from '../csi/status.ts';
import type { ActiveGateway, NamedGateway } from '../records/active-gateway.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { afterProbe, decideFailover } from './decide-failover.ts';
import type { GatewayHealth, ProbeResult } from './decide-failover.ts';

export interface GatewayFailoverOptions {
  readonly pool: Pick<GatewayPool, 'gateways' | 'prefer'>;
  readonly active: ActiveGateway;
  readonly driver: string;
  /** Deadline of one driver call, and of each probe. */
  readonly timeoutMs: number;
  readonly ownershipMs: number;
  /** Asked each time, right before something is written. */
  readonly isLeading: () => boolean;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

export interface GatewayFailover {
  /** For /readyz: why calls go nowhere; undefined also while another ingest leads. */
  readonly trouble: string | undefined;
  /** Looks now, as at the beginning of a leadership. */
  wake(): void;
  close(): void;
}

const EVERY_MS = 500;
/** Where there is nothing to choose, only what Redis says is looked after. */
const EVERY_ALONE_MS = 5_000;

/** Probes every gateway of the driver twice a second while this ingest leads, and names the one
 * that gets calls. With one gateway there is nothing to choose: it is named at once and not probed.
 */
export function startGatewayFailover(options: GatewayFailoverOptions): GatewayFailover {
  const { clock, pool } = options;
  const metrics = failoverMetrics(options);
  const sights = new Map<string, GatewayHealth>(
    pool.gateways.map(({ address }) => [address, { kind: 'unknown' }]),
  );
  const closed = new AbortController();
  let pause = new AbortController();
  let trouble: string | undefined;
  /** What this process named or saw while leading: Redis may lose it, and must not make the choice
   * fall on another one. */
  let known: NamedGateway | undefined;

  const turn = async (): Promise<void> => {
    if (!options.isLeading()) {
      for (const address of sights.keys()) sights.set(address, { kind: 'unknown' });
      known = undefined;
      trouble = undefined;
      metrics.show('');
      return;
    }
    // One that does not answer must not keep the others from being seen: their probes go on, and
    // what they find counts at the next turn.
    if (pool.gateways.length > 1) {
      const probes = Promise.all(pool.gateways.map((gateway) => look(gateway)));
      await Promise.race([probes, clock.sleep(EVERY_MS)]);
    }
    if (closed.signal.aborted) return;
    trouble = await elect();
  };

  const probing = new Set<string>();
  const look = async (gateway: Gateway): Promise<void> => {
    const { address } = gateway;
    if (probing.has(address)) return;
    probing.add(address);
    const startedMs = clock.nowMs();
    const result = await probe(gateway, options);
    probing.delete(address);
    const before = sights.get(address) ?? { kind: 'unknown' };
    const sight = afterProbe(before, result, startedMs);
    sights.set(address, sight);
    if (before.kind !== sight.kind)
      options.log.info({ gateway: address, ...sight }, 'gateway seen');
  };

  /** @returns what is wrong */
  const elect = async (): Promise<string | undefined> => {
    const { active, driver, log, ownershipMs, timeoutMs } = options;
    const found = await active.read();
    // Emptied, or back in time: the choice of before stands, since calls may be under way there.
    // The blessing's quarantine guards the records.
    const isLost = known !== undefined && found.version < known.version;
    const current = isLost ? (known?.endpoint ?? '') : found.endpoint;
    const choice = decideFailover({
      candidates: sights,
      current,
      nowMs: clock.nowMs(),
      timeoutMs,
      ownershipMs,
    });
    if (choice.kind !== 'move') {
      if (isLost && current !== '' && options.isLeading()) {
        if (!(await active.name({ version: found.version, endpoint: current, waitMs: 0 })))
          return trouble;
        log.warn(
          { driver, gateway: current },
          'Redis had lost which gateway is active; named again',
        );
        known = { ...found, endpoint: current, version: found.version + 1 };
      } else known = found;
      metrics.show(current);
      pool.prefer(current);
      return troubleOf(current, choice.kind === 'none' ? choice.why : undefined);
    }
    if (!options.isLeading()) return trouble;
    if (
      !(await active.name({ version: found.version, endpoint: choice.to, waitMs: choice.waitMs }))
    )
      return trouble;
    known = { ...found, endpoint: choice.to, version: found.version + 1 };
    const fields = { driver, gateway: choice.to, why: choice.why, waitMs: choice.waitMs };
    if (current === '') log.info(fields, 'active gateway named');
    else log.warn({ ...fields, previous: current }, 'active gateway moved');
    if (current !== '') metrics.moved();
    metrics.show(choice.to);
    pool.prefer(choice.to);
    return troubleOf(choice.to, undefined);
  };

  const troubleOf = (current: string, why: string | undefined): string | undefined => {
    const sight = sights.get(current);
    if (current === '') return `no gateway is active: ${why ?? ''}`;
    if (sight?.kind === 'unreachable')
      return `the active gateway ${current} is unreachable: ${sight.reason}`;
    return why === undefined ? undefined : `the active gateway ${current} is to be left: ${why}`;
  };

  const everyMs = pool.gateways.length > 1 ? EVERY_MS : EVERY_ALONE_MS;
  const loop = async (): Promise<void> => {
    while (!closed.signal.aborted) {
      pause = new AbortController();
      await turn().catch((error: unknown) =>
        options.log.debug(
          { err: error },
          'the active gateway could not be looked after; looking again',
        ),
      );
      if (!closed.signal.aborted) await clock.sleep(everyMs, pause.signal);
    }
  };
  void loop();
  return {
    get trouble() {
      return trouble;
    },
    wake: () => pause.abort('leading'),
    close() {
      closed.abort('closed');
      pause.abort('closed');
    },
  };
}

/** Identity.Probe through the gateway, and who answers: a gateway of another driver is a mistake in
 * the flags, and never gets calls. */
async function probe(
  { client }: Gateway,
  { driver, timeoutMs }: GatewayFailoverOptions,
): Promise<ProbeResult> {
  const settings = { timeoutMs, metadata: { [FAILOVER_METADATA]: '1' } };
  try {
    const { ready } = await client.probe(settings);
    if (ready === false)
      return { kind: 'failed', reason: 'its driver answers Probe with ready=false' };
    const { name } = await client.getPluginInfo(settings);
    return name === driver
      ? { kind: 'answered' }
      : { kind: 'failed', reason: `its driver is ${name}, not ${driver}; correct --gateway` };
  } catch (error) {
    if (error instanceof CsiError && error.draining !== undefined)
      return { kind: 'draining', running: error.draining };
    return { kind: 'failed', reason: error instanceof Error ? error.message : String(error) };
  }
}

interface FailoverMetrics {
  /** '' = none, or not ours to say. */
  show(gateway: string): void;
  moved(): void;
}

function failoverMetrics({ driver, metrics, pool }: GatewayFailoverOptions): FailoverMetrics {
  const active = new Gauge({
    name: 'sutler_active_gateway',
    help: '1 for the gateway that gets the controller calls of a driver, as the leading ingest named it.',
    labelNames: ['driver', 'gateway'],
    registers: [metrics],
  });
  const moves = new Counter({
    name: 'sutler_active_gateway_moves_total',
    help: 'Times that another gateway became the active one.',
    labelNames: ['driver'],
    registers: [metrics],
  });
  moves.inc({ driver }, 0);
  return {
    show(current) {
      active.reset();
      if (current === '') return;
      for (const { address } of pool.gateways) active.set({ driver, gateway: address }, 0);
      active.set({ driver, gateway: current }, 1);
    },
    moved: () => moves.inc({ driver }),
  };
}
