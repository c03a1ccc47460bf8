import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import { openTestPool, type TestPool } from '../../harness/gateway-pool.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

describe('a worker with several gateways', () => {
  let rig: Rig;
  let pool: TestPool;
  let here: string;
  const nameGateway = async (endpoint: string, waitMs = 0): Promise<void> => {
    const active = redisActiveGateway({ redis: rig.redis, prefix: 'csi', driver: DRIVER });
    assert.equal(
      await active.name({ version: (await active.read()).version, endpoint, waitMs }),
      true,
    );
  };
  const calls = (method: string): number =>
    rig.driver.calls.filter((call) => call.method === method).length;

  before(async () => {
    rig = await openRig();
    here = `unix://${rig.dir}/gateway.sock`;
    pool = openTestPool('unix:///run/missing.sock', here);
  });
  after(async () => {
    pool.close();
    await rig.close();
  });
  beforeEach(async () => {
    await rig.reset();
    await rig.redis.del(`{csi}:gateway:${DRIVER}`);
  });
  const parts = () => ({ csi: pool, endpoint: pool.soleAddress });

  it('calls the active one', async () => {
    await nameGateway(here);
    const claim = await rig.claim();
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    const volume = await rig.volumeOf(claim);
    assert.ok(volume !== undefined);
    const released = await rig.setPhase(volume, 'Released');
    assert.equal((await rig.remove(released, parts())).kind, 'done');
    assert.deepEqual([calls('CreateVolume'), calls('DeleteVolume')], [1, 1]);
  });

  const refusals: Record<string, [prepare: () => Promise<void>, reason: RegExp]> = {
    'no leader has named one': [
      async () => undefined,
      /no leading ingest has named the active gateway/,
    ],
    'the named one is not among its flags': [
      () => nameGateway('unix:///elsewhere'),
      /unix:\/\/\/elsewhere is not among the gateways of this process/,
    ],
    'the named one is down': [() => nameGateway('unix:///run/missing.sock'), /no connection to/],
    'calls at the previous one may be under way': [
      () => nameGateway(here, 60_000),
      /calls of another gateway of the driver may be under way/,
    ],
  };
  for (const [when, [prepare, reason]] of Object.entries(refusals)) {
    it(`delays the run and begins nothing while ${when}`, async () => {
      await prepare();
      const claim = await rig.claim();
      const outcome = await rig.provision(claim, parts());
      assert.equal(outcome.kind, 'later');
      assert.match(outcome.kind === 'later' ? outcome.reason : '', reason);
      assert.equal(await rig.doubtMs(claim), undefined);
      assert.equal(calls('CreateVolume'), 0);
    });
  }
});
