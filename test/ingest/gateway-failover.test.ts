import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Gateway } from '#src/csi-gateway/server.ts';
import { GatewayFailover } from '#src/ingest/gateway-failover.ts';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import type { Address } from '#src/runtime/address.ts';
import { Closers } from '#src/runtime/closers.ts';
import { createLogger } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { openPoolOf, openTestPool, type TestPool } from '../harness/gateway-pool.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const DRIVER = 'd.example';
/** A gateway that does not answer within this time counts as unreachable. */
const TIMEOUT_MS = 300;
/** Longer than any test takes. */
const NEVER_MS = 600_000;

describe('GatewayFailover', () => {
  let redis: TestRedis;
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let closers: Closers;
  let metrics: Registry;
  let isLeading: boolean;
  let timeoutMs: number;
  let lines: string[];

  before(async () => (redis = await startTestRedis()));
  after(() => redis.close());
  beforeEach(async () => {
    await redis.redis.flushall();
    closers = new Closers();
    folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    metrics = new Registry();
    isLeading = true;
    timeoutMs = TIMEOUT_MS;
    lines = [];
  });
  afterEach(async () => assert.deepEqual(await closers.close(), []));

  const place = () => ({ redis: redis.redis, prefix: 'csi', driver: DRIVER });
  const active = () => redisActiveGateway(place());
  const address = (name: string): string => `unix://${folder.file(`${name}.gw`)}`;
  /** For how long no call begins. */
  const waitMs = async (): Promise<number> =>
    Math.max(0, Number(await redis.redis.hget(`{csi}:gateway:${DRIVER}`, 'openAt')) - Date.now());
  const pod = (name: string): string => `pod:${name}/${name}`;
  const isActive = (endpoint: string) =>
    until(async () => (await active().read()).endpoint === endpoint, `${endpoint} is named`);
  const isNamed = (name: string) => isActive(address(name));
  const wasLogged = (text: string) =>
    until(() => lines.some((line) => line.includes(text)), `"${text}" is logged`);
  /** Resolves when a probe of it has succeeded since the last call. */
  const isReachable = async (endpoint: string): Promise<void> => {
    const isItsLine = (line: string): boolean =>
      line.includes(endpoint) && line.includes('"kind":"reachable"');
    await until(() => lines.some(isItsLine), `${endpoint} is reachable`);
    lines = [];
  };

  /** A driver and its gateway, ready. */
  async function replica(name: string, driverName = DRIVER): Promise<Gateway> {
    const files = { socket: folder.file(`${name}.csi`), dataDir: folder.file(`${name}.d`) };
    const driver = await startSampleDriver({ ...files, name: driverName });
    closers.add('driver', () => driver.close());
    return gateway(name);
  }

  async function gateway(name: string): Promise<Gateway> {
    const started = await startTestGateway(folder, {
      driver: { kind: 'unix', path: folder.file(`${name}.csi`) },
      listen: { kind: 'unix', path: folder.file(`${name}.gw`) },
    });
    closers.add('gateway', () => started.close());
    await until(() => started.gateway.trouble === undefined, `${name} is ready`);
    return started.gateway;
  }

  function start(...names: string[]): GatewayFailover {
    return startWith(openTestPool(...names.map(address)));
  }

  function startWith(pool: TestPool): GatewayFailover {
    closers.add('pool', () => pool.close());
    const write = (line: string): void => void lines.push(line);
    const failover = new GatewayFailover({
      pool,
      place: place(),
      timeoutMs,
      doubtMs: 5_000,
      isLeading: () => isLeading,
      log: createLogger({ name: 'test', verbosity: 9, format: 'json', write }),
      metrics,
      periodMs: 50,
    });
    closers.add('failover', () => failover.close());
    return failover;
  }

  it('names a single gateway at once, whether or not it answers', async () => {
    const failover = start('a');
    await isNamed('a');
    await until(() => failover.trouble === undefined, 'no trouble');
  });

  it('names the first gateway of this driver that answers, and reports trouble until one does', async () => {
    await replica('other', 'other.example');
    const failover = start('gone', 'other', 'b');
    await until(() => failover.trouble !== undefined, 'trouble');
    assert.match(failover.trouble ?? '', /no gateway is active/);
    assert.equal((await active().read()).endpoint, '');
    await replica('b');
    await isNamed('b');
    assert.equal((await active().read()).version, 1);
    assert.match(
      await metrics.metrics(),
      /sutler_active_gateway\{driver="d.example",gateway="unix:[^"]*b.gw"\} 1/,
    );
  });

  it('keeps the gateway that an earlier leader named, also after Redis was emptied', async () => {
    await Promise.all([replica('a'), replica('b')]);
    await active().name({ version: 0, endpoint: address('b'), waitMs: 0 });
    timeoutMs = NEVER_MS;
    const failover = start('a', 'b');
    await isReachable(address('a'));
    failover.checkNow();
    await until(async () => /gateway="[^"]*b.gw"\} 1/.test(await metrics.metrics()), 'it decided');
    const { endpoint, version } = await active().read();
    assert.deepEqual({ endpoint, version }, { endpoint: address('b'), version: 1 });
    await redis.redis.flushall();
    await isNamed('b');
    await wasLogged('Redis lost the active gateway: named it again');
  });

  it('moves at once when the active gateway has drained', async () => {
    const [a] = await Promise.all([replica('a'), replica('b')]);
    timeoutMs = NEVER_MS;
    start('a', 'b');
    await isNamed('a');
    await isReachable(address('a'));
    await a.close(5_000);
    await isNamed('b');
    assert.equal(await waitMs(), 0);
    const moves = /sutler_active_gateway_moves_total\{driver="d.example"\} 1/;
    assert.match(await metrics.metrics(), moves);
  });

  it('moves when the active gateway is unreachable, lets its calls end, and never moves back', async () => {
    const [a] = await Promise.all([replica('a'), replica('b')]);
    const failover = start('a', 'b');
    await isNamed('a');
    await isReachable(address('a'));
    await a.close(0);
    await isNamed('b');
    await wasLogged(`"waitMs":${TIMEOUT_MS}`);
    await until(() => failover.trouble === undefined, 'no trouble');
    await gateway('a');
    await isReachable(address('a'));
    assert.equal((await active().read()).version, 2);
  });

  it('writes nothing while another ingest leads', async () => {
    isLeading = false;
    const failover = start('a');
    failover.checkNow();
    assert.deepEqual([(await active().read()).endpoint, failover.trouble], ['', undefined]);
    isLeading = true;
    failover.checkNow();
    await isNamed('a');
  });

  it('takes the active gateway for unreachable when its pod is gone without a drain', async () => {
    await Promise.all([replica('a'), replica('b')]);
    const pods = new Map<string, Address>();
    for (const name of ['a', 'b'])
      pods.set(pod(name), { kind: 'unix', path: folder.file(`${name}.gw`) });
    startWith(openPoolOf(pods));
    await isActive(pod('a'));
    pods.delete(pod('a'));
    await isActive(pod('b'));
    await wasLogged(`ms: its pod is gone","waitMs":${TIMEOUT_MS}`);
  });
});
