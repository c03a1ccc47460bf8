import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const DRIVER = 'd.example';
const A = 'unix:///a';
const B = 'unix:///b';

describe('the active gateway', () => {
  let server: TestRedis;
  const active = () => redisActiveGateway({ redis: server.redis, prefix: 'csi', driver: DRIVER });
  const name = async (endpoint: string, waitMs = 0): Promise<void> => {
    const { version } = await active().read();
    assert.equal(await active().name({ version, endpoint, waitMs }), true);
  };
  /** For how long no call begins. */
  const waitMs = async (): Promise<number> =>
    Number(await server.redis.hget(`{csi}:gateway:${DRIVER}`, 'openAt')) - Date.now();

  before(async () => (server = await startTestRedis()));
  after(() => server.close());
  beforeEach(() => server.redis.flushall());

  it('is not named at first', async () => {
    assert.deepEqual(await active().read(), { endpoint: '', version: 0 });
  });

  it('keeps how long calls of the previous one may be under way', async () => {
    await name(A);
    await name(B, 60_000);
    assert.deepEqual(await active().read(), { endpoint: B, version: 2 });
    const leftMs = await waitMs();
    assert.ok(leftMs > 50_000 && leftMs <= 60_000, String(leftMs));
  });

  it('is named by only one of two leaders that read the same version', async () => {
    await name(A);
    const { version } = await active().read();
    const both = await Promise.all([
      active().name({ version, endpoint: B, waitMs: 0 }),
      active().name({ version, endpoint: A, waitMs: 0 }),
    ]);
    assert.deepEqual(both.toSorted(), [false, true]);
    assert.equal((await active().read()).version, version + 1);
  });

  it('does not shorten a wait when another one is named meanwhile', async () => {
    await name(A);
    await name(B, 60_000);
    await name(A);
    assert.ok((await waitMs()) > 50_000);
  });
});
