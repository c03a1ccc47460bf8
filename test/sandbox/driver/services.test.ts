import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { DescMethodUnary } from '@bufbuild/protobuf';
import { readControllerCapabilities, readPluginCapabilities } from '#src/csi/capabilities.ts';
import { Controller, Identity, Node } from '#src/csi/generated/csi_pb.ts';
import { SAMPLE_CAPABILITIES } from '../../../sandbox/driver/capabilities.ts';
import type { SampleDriverOptions } from '../../../sandbox/driver/server.ts';
import { volumeRequest } from '../../harness/csi-gateway.ts';
import {
  altered,
  blockCapability,
  openDriver,
  type DriverUnderTest,
} from '../../harness/sample-driver.ts';

const { createVolume, controllerGetCapabilities, validateVolumeCapabilities } = Controller.method;

async function using<T>(
  options: Partial<SampleDriverOptions>,
  work: (d: DriverUnderTest) => Promise<T>,
): Promise<T> {
  const d = await openDriver(options);
  try {
    return await work(d);
  } finally {
    await d.close();
  }
}
const controllerOf = async (d: DriverUnderTest) => [
  ...readControllerCapabilities(await d.ask(controllerGetCapabilities, {})),
];
const pluginOf = async (d: DriverUnderTest) => [
  ...readPluginCapabilities(await d.ask(Identity.method.getPluginCapabilities, {})),
];

describe('services of the sample driver', () => {
  it('have all capabilities except SINGLE_NODE_MULTI_WRITER by default', async () => {
    assert.deepEqual(
      await using({}, controllerOf),
      SAMPLE_CAPABILITIES.filter((name) => name !== 'SINGLE_NODE_MULTI_WRITER'),
    );
    assert.deepEqual(await using({ capabilities: ['SINGLE_NODE_MULTI_WRITER'] }, controllerOf), [
      'SINGLE_NODE_MULTI_WRITER',
    ]);
  });

  for (const [capability, methods] of [
    ['CREATE_DELETE_VOLUME', ['createVolume', 'deleteVolume']],
    ['LIST_VOLUMES', ['listVolumes']],
    ['GET_CAPACITY', ['getCapacity']],
    ['GET_VOLUME', ['controllerGetVolume']],
    ['CREATE_DELETE_SNAPSHOT', ['createSnapshot', 'deleteSnapshot']],
    ['LIST_SNAPSHOTS', ['listSnapshots']],
    ['MODIFY_VOLUME', ['controllerModifyVolume']],
  ] as const) {
    it(`do not have ${methods.join(' and ')} without ${capability}`, async () => {
      const isUnimplemented = (d: DriverUnderTest) =>
        Promise.all(
          methods.map(async (name) => {
            const ended = await d.ask(Controller.method[name] as DescMethodUnary, {}).then(
              () => 'OK',
              (error: unknown) => String(error),
            );
            return ended.includes('Unimplemented');
          }),
        );
      const without = SAMPLE_CAPABILITIES.filter((name) => name !== capability);
      assert.deepEqual(
        await using({ capabilities: without }, isUnimplemented),
        methods.map(() => true),
      );
      assert.deepEqual(
        await using({ capabilities: [capability] }, isUnimplemented),
        methods.map(() => false),
      );
    });
  }

  it('report a topology for the node and every volume only if one is configured', async () => {
    await using({}, async (d) => {
      assert.deepEqual(await pluginOf(d), ['CONTROLLER_SERVICE']);
      assert.equal((await d.ask(Node.method.nodeGetInfo, {})).accessibleTopology, undefined);
      assert.deepEqual(
        (await d.ask(createVolume, volumeRequest('a'))).volume?.accessibleTopology,
        [],
      );
    });
    await using({ topology: { zone: 'z1' } }, async (d) => {
      assert.deepEqual(await pluginOf(d), [
        'CONTROLLER_SERVICE',
        'VOLUME_ACCESSIBILITY_CONSTRAINTS',
      ]);
      assert.deepEqual((await d.ask(Node.method.nodeGetInfo, {})).accessibleTopology?.segments, {
        zone: 'z1',
      });
      const { volume } = await d.ask(createVolume, volumeRequest('a'));
      assert.deepEqual(
        volume?.accessibleTopology.map(({ segments }) => segments),
        [{ zone: 'z1' }],
      );
    });
  });

  it('confirm only the capabilities that a volume was created with', async () => {
    await using({}, async (d) => {
      const { volumeCapabilities } = volumeRequest('a');
      const volumeId = (await d.ask(createVolume, volumeRequest('a'))).volume?.volumeId ?? '';
      assert.ok(
        (await d.ask(validateVolumeCapabilities, { volumeId, volumeCapabilities })).confirmed !==
          undefined,
      );
      const other = await d.ask(validateVolumeCapabilities, {
        volumeId,
        volumeCapabilities: [blockCapability],
      });
      assert.deepEqual(
        [other.confirmed, other.message],
        [undefined, `volume ${volumeId} is a mount volume`],
      );
    });
  });

  it('let a hook change an answer', async () => {
    const onCall = altered(createVolume, (answer) => {
      if (answer.volume !== undefined) answer.volume.capacityBytes /= 2n;
    });
    await using({ onCall }, async (d) => {
      const { volume } = await d.ask(createVolume, {
        ...volumeRequest('a'),
        capacityRange: { requiredBytes: 1024n },
      });
      assert.deepEqual(
        [volume?.capacityBytes, d.driver.volumes()[0]?.capacityBytes],
        [512n, 1024n],
      );
      assert.ok((await d.ask(Controller.method.getCapacity, {})).availableCapacity > 0n);
    });
  });
});
