import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, volumeRequest } from '../harness/csi-gateway.ts';
import { openTestPool, type TestPool } from '../harness/gateway-pool.ts';

describe('GatewayPool', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let drivers: SampleDriver[];
  let pool: TestPool;
  const address = (name: string): string => `unix://${folder.file(name)}`;

  before(async () => {
    folder = await makeFolder();
    drivers = [];
    for (const name of ['a', 'b']) {
      const options = { socket: folder.file(name), dataDir: folder.file(`${name}-data`) };
      drivers.push(await startSampleDriver(options));
    }
    // A path and its URL name the same gateway.
    pool = openTestPool(folder.file('a'), address('a'), address('b'));
  });
  after(async () => {
    pool.close();
    for (const driver of drivers) await driver.close();
    await folder.remove();
  });

  it('sends a call to the named gateway and prefers that one afterwards', async () => {
    await pool.createVolume(volumeRequest('one'), { timeoutMs: 30_000, gateway: address('b') });
    assert.deepEqual(
      drivers.map(({ counts }) => counts.get('CreateVolume') ?? 0),
      [0, 1],
    );
    assert.equal(pool.inOrder()[0]?.address, address('b'));
    assert.equal((await pool.listVolumes({}, { timeoutMs: 30_000 })).entries.length, 1);
  });

  it('refuses a call without a named gateway if there are several', async () => {
    const error = await failureOf(
      pool.deleteVolume({ volumeId: 'x' }, { timeoutMs: 30_000, gateway: '' }),
    );
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /no leading ingest has named the active gateway/);
  });
});
