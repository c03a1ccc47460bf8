import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  CreateVolumeResponseSchema,
  GetPluginInfoResponseSchema,
} from '#src/csi/generated/csi_pb.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway, volumeRequest } from '../harness/csi-gateway.ts';
import { answerOk, type RawDriver, startRawDriver } from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const DRIVER = 'disk.csi.azure.com';
const SETTINGS = { timeoutMs: 30_000 };

describe('a driver that replaces an in-tree plug-in, behind the gateway', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  before(async () => {
    folder = await makeFolder();
    driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (call.path.endsWith('/GetPluginInfo'))
        return answerOk(
          call,
          toBinary(
            GetPluginInfoResponseSchema,
            create(GetPluginInfoResponseSchema, { name: DRIVER }),
          ),
        );
      if (!call.path.endsWith('Volume')) return false;
      return answerOk(
        call,
        toBinary(
          CreateVolumeResponseSchema,
          create(CreateVolumeResponseSchema, { volume: { volumeId: 'h' } }),
        ),
      );
    });
    test = await startTestGateway(folder);
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  after(async () => {
    await test.close();
    await driver.close();
    await folder.remove();
  });

  it('gets no metadata about migration, which only labels metrics (Q-40)', async () => {
    await test.client.createVolume(volumeRequest('a'), { ...SETTINGS, migrated: true });
    await test.client.createVolume(volumeRequest('b'), { ...SETTINGS, migrated: false });
    await test.client.deleteVolume({ volumeId: 'h' }, { ...SETTINGS, migrated: true });
    await test.client.deleteVolume({ volumeId: 'h' }, SETTINGS);
    const text = await test.metrics.metrics();
    const series = [
      ...text.matchAll(
        /_count\{driver_name="([^"]+)",method_name="[^"]+\/(\w+Volume)",[^"]+"OK"(.*)\} (\d)/g,
      ),
    ];
    assert.deepEqual(series.map(([, ...facts]) => facts.join(' ')).toSorted(), [
      `${DRIVER} CreateVolume ,migrated="false" 1`,
      `${DRIVER} CreateVolume ,migrated="true" 1`,
      `${DRIVER} DeleteVolume ,migrated="false" 1`,
      `${DRIVER} DeleteVolume ,migrated="true" 1`,
    ]);
    const sent = driver.calls.flatMap(({ headers }) => headers.map(([name]) => name));
    assert.deepEqual(
      sent.filter((name) => name.startsWith('sutler-')),
      [],
    );
  });
});
