import assert from 'node:assert/strict';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../../sandbox/driver/server.ts';
import { makeFolder } from '../../harness/csi-folder.ts';
import { failureOf, volumeRequest } from '../../harness/csi-gateway.ts';

const SETTINGS = { timeoutMs: 5_000 };
const GIB = 1024n ** 3n;

describe('sample driver', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let client: CsiClient;

  async function start(options: Partial<SampleDriverOptions> = {}): Promise<void> {
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      ...options,
    });
    client = new CsiClient({
      address: { kind: 'unix', path: folder.file('csi.sock') },
    });
  }
  async function stop(): Promise<void> {
    client.close();
    await driver.close();
  }
  beforeEach(async () => (folder = await makeFolder()));
  afterEach(async () => {
    await stop();
    await folder.remove();
  });

  it('creates one volume per name, also after a restart', async () => {
    await start();
    const request = { ...volumeRequest('a'), capacityRange: { requiredBytes: 5n * GIB } };
    const { volume } = await client.createVolume(request, SETTINGS);
    assert.equal(volume?.capacityBytes, 5n * GIB);
    assert.ok(existsSync(volume.volumeContext['directory'] ?? ''));
    await stop();
    mkdirSync(join(folder.file('data'), 'vol-half-made'));
    await start();
    assert.equal((await client.createVolume(request, SETTINGS)).volume?.volumeId, volume.volumeId);
    assert.deepEqual(
      driver.volumes().map(({ name }) => name),
      ['a'],
      'a directory without metadata was never answered for',
    );
    assert.equal(
      (await client.getCapacity({}, SETTINGS)).availableCapacity,
      1024n * GIB - 5n * GIB,
    );
  });

  it('refuses an incompatible size for an existing name', async () => {
    await start();
    await client.createVolume(
      { ...volumeRequest('a'), capacityRange: { requiredBytes: 2n * GIB } },
      SETTINGS,
    );
    const bigger = await failureOf(
      client.createVolume(
        { ...volumeRequest('a'), capacityRange: { requiredBytes: 3n * GIB } },
        SETTINGS,
      ),
    );
    assert.equal(bigger.code, Code.AlreadyExists);
    await client.createVolume(
      { ...volumeRequest('a'), capacityRange: { requiredBytes: GIB, limitBytes: 2n * GIB } },
      SETTINGS,
    );
  });

  it('deletes a volume, and succeeds for an unknown handle', async () => {
    await start();
    const { volume } = await client.createVolume(volumeRequest('a'), SETTINGS);
    await client.deleteVolume({ volumeId: volume?.volumeId ?? '' }, SETTINGS);
    assert.ok(!existsSync(volume?.volumeContext['directory'] ?? '/'));
    await client.deleteVolume({ volumeId: volume?.volumeId ?? '' }, SETTINGS);
    assert.equal(driver.volumes().length, 0);
  });

  it('writes only in its folder, whatever name or handle is given', async () => {
    await start();
    mkdirSync(folder.file('outside'));
    await client.deleteVolume({ volumeId: '../outside' }, SETTINGS);
    assert.ok(existsSync(folder.file('outside')));
    const { volume } = await client.createVolume(volumeRequest('../../evil'), SETTINGS);
    assert.ok(volume?.volumeContext['directory']?.startsWith(folder.file('data')));
  });

  it('answers an invalid request with the code for its error', async () => {
    await start({ capacityBytes: 3n * GIB });
    const code = async (request: object): Promise<string> =>
      (await failureOf(client.createVolume(request, SETTINGS))).codeName;
    assert.equal(await code(volumeRequest('')), 'InvalidArgument');
    assert.equal(await code({ name: 'a' }), 'InvalidArgument');
    assert.equal(
      await code({ ...volumeRequest('a'), capacityRange: { requiredBytes: 2n, limitBytes: 1n } }),
      'OutOfRange',
    );
    assert.equal(
      await code({ ...volumeRequest('a'), capacityRange: { requiredBytes: 4n * GIB } }),
      'ResourceExhausted',
    );
    assert.equal(
      (await failureOf(client.deleteVolume({ volumeId: '' }, SETTINGS))).codeName,
      'InvalidArgument',
    );
  });

  it('requires the secret of the class for creation and deletion', async () => {
    await start();
    const request = { ...volumeRequest('a'), parameters: { requireSecret: 'token' } };
    assert.equal(
      (await failureOf(client.createVolume(request, SETTINGS))).codeName,
      'InvalidArgument',
    );
    const { volume } = await client.createVolume({ ...request, secrets: { token: 'x' } }, SETTINGS);
    const volumeId = volume?.volumeId ?? '';
    assert.equal(
      (await failureOf(client.deleteVolume({ volumeId }, SETTINGS))).codeName,
      'InvalidArgument',
    );
    await client.deleteVolume({ volumeId, secrets: { token: 'x' } }, SETTINGS);
  });

  it('lists every volume once over several pages', async () => {
    await start();
    for (let i = 0; i < 5; i += 1) await client.createVolume(volumeRequest(`v${i}`), SETTINGS);
    const seen: string[] = [];
    let startingToken = '';
    do {
      const page = await client.listVolumes({ maxEntries: 2, startingToken }, SETTINGS);
      assert.ok(page.entries.length <= 2);
      seen.push(...page.entries.map(({ volume }) => volume?.volumeId ?? ''));
      startingToken = page.nextToken;
    } while (startingToken !== '');
    assert.equal(new Set(seen).size, 5);
    assert.equal(
      (await failureOf(client.listVolumes({ startingToken: 'junk' }, SETTINGS))).codeName,
      'Aborted',
    );
  });

  it('continues after the caller cancelled, and answers Aborted meanwhile', async () => {
    await start({ delayMs: 600 });
    assert.equal(
      (await failureOf(client.createVolume(volumeRequest('a'), { timeoutMs: 30 }))).codeName,
      'DeadlineExceeded',
    );
    assert.equal(
      (await failureOf(client.createVolume(volumeRequest('a'), SETTINGS))).codeName,
      'Aborted',
    );
    while (driver.volumes().length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await client.createVolume(volumeRequest('a'), SETTINGS);
    assert.equal(driver.volumes().length, 1);
  });

  it('lets a hook answer, fail before or after the work, and counts calls', async () => {
    const { DriverStatus } = await import('../../../sandbox/driver/driver-status.ts');
    await start({
      record: true,
      onCall: async ({ method, count, proceed }) => {
        if (method !== 'CreateVolume' || count > 2) return undefined;
        if (count === 1) return { volume: { volumeId: 'scripted' } };
        await proceed();
        throw new DriverStatus(Code.Unavailable, 'lost');
      },
    });
    assert.equal(
      (await client.createVolume(volumeRequest('a'), SETTINGS)).volume?.volumeId,
      'scripted',
    );
    assert.equal(driver.volumes().length, 0);
    assert.equal(
      (await failureOf(client.createVolume(volumeRequest('a'), SETTINGS))).details,
      'lost',
    );
    assert.equal(driver.volumes().length, 1);
    await client.createVolume(volumeRequest('a'), SETTINGS);
    assert.equal(driver.counts.get('CreateVolume'), 3);
    assert.deepEqual(
      driver.calls.map(({ method }) => method),
      ['CreateVolume', 'CreateVolume', 'CreateVolume'],
    );
  });
});
