import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  Controller,
  type CreateVolumeRequest,
  type CreateVolumeRequestSchema,
  type Volume,
} from '#src/csi/generated/csi_pb.ts';
import { volumeRequest } from '../../harness/csi-gateway.ts';
import { blockCapability, openDriver, type DriverUnderTest } from '../../harness/sample-driver.ts';

const {
  createVolume,
  deleteVolume,
  controllerGetVolume,
  controllerModifyVolume,
  createSnapshot,
  deleteSnapshot,
  listVolumes,
} = Controller.method;
const MIB = 1024n ** 2n;

type Request = Exclude<MessageInitShape<typeof CreateVolumeRequestSchema>, CreateVolumeRequest>;
const ofVolume = (volumeId: string) => ({ type: { case: 'volume' as const, value: { volumeId } } });
const ofSnapshot = (snapshotId: string) => ({
  type: { case: 'snapshot' as const, value: { snapshotId } },
});

describe('volumes of the sample driver', () => {
  let d: DriverUnderTest;
  const make = async (name: string, more: Request = {}): Promise<Volume> => {
    const capacityRange = { requiredBytes: MIB };
    const { volume } = await d.ask(createVolume, {
      ...volumeRequest(name),
      capacityRange,
      ...more,
    });
    assert.ok(volume !== undefined);
    return volume;
  };
  const refusal = (name: string, more: Request = {}): Promise<string> =>
    d.refusal(createVolume, {
      ...volumeRequest(name),
      capacityRange: { requiredBytes: MIB },
      ...more,
    });
  const snapshotOf = async ({ volumeId }: Volume, name = 's'): Promise<string> =>
    (await d.ask(createSnapshot, { name, sourceVolumeId: volumeId })).snapshot?.snapshotId ?? '';
  const directory = (volume: Volume): string => volume.volumeContext['directory'] ?? '';
  const file = (volume: Volume): string => volume.volumeContext['file'] ?? '';
  beforeEach(async () => (d = await openDriver({ capacityBytes: 64n * MIB })));
  afterEach(() => d.close());

  describe('created from a source', () => {
    it('have a copy of the contents, independent of the source', async () => {
      const source = await make('source');
      writeFileSync(join(directory(source), 'hello'), 'world');
      mkdirSync(join(directory(source), 'deep'));
      symlinkSync('../hello', join(directory(source), 'deep', 'link'));
      const clone = await make('clone', { volumeContentSource: ofVolume(source.volumeId) });
      await d.ask(deleteVolume, { volumeId: source.volumeId });
      assert.equal(readFileSync(join(directory(clone), 'deep', 'link'), 'utf8'), 'world');
      assert.equal(readlinkSync(join(directory(clone), 'deep', 'link')), '../hello');
    });

    it('have the contents of the snapshot after later changes of its volume', async () => {
      const source = await make('source');
      writeFileSync(join(directory(source), 'hello'), 'world');
      const snapshot = await snapshotOf(source);
      writeFileSync(join(directory(source), 'hello'), 'changed');
      await d.ask(deleteVolume, { volumeId: source.volumeId });
      const restored = await make('restored', { volumeContentSource: ofSnapshot(snapshot) });
      assert.equal(readFileSync(join(directory(restored), 'hello'), 'utf8'), 'world');
    });

    it('name their source in every answer, also after a restart', async () => {
      const source = await make('source');
      const snapshot = await snapshotOf(source);
      const clone = await make('clone', { volumeContentSource: ofVolume(source.volumeId) });
      const restored = await make('restored', { volumeContentSource: ofSnapshot(snapshot) });
      assert.deepEqual(
        [source.contentSource, clone.contentSource?.type, restored.contentSource?.type].map(
          (type) => JSON.stringify(type),
        ),
        [
          undefined,
          JSON.stringify({
            case: 'volume',
            value: {
              $typeName: 'csi.v1.VolumeContentSource.VolumeSource',
              volumeId: source.volumeId,
            },
          }),
          JSON.stringify({
            case: 'snapshot',
            value: { $typeName: 'csi.v1.VolumeContentSource.SnapshotSource', snapshotId: snapshot },
          }),
        ],
      );
      await d.restart();
      const { volume } = await d.ask(controllerGetVolume, { volumeId: restored.volumeId });
      assert.deepEqual(volume, restored);
      const listed = (await d.ask(listVolumes, {})).entries.find(
        (entry) => entry.volume?.volumeId === clone.volumeId,
      );
      assert.deepEqual(listed?.volume, clone);
    });

    it('have the size of the source if no size is requested', async () => {
      const source = await make('source', { capacityRange: { requiredBytes: 3n * MIB } });
      const clone = await make('clone', {
        capacityRange: {},
        volumeContentSource: ofVolume(source.volumeId),
      });
      assert.equal(clone.capacityBytes, 3n * MIB);
      const larger = await make('larger', {
        capacityRange: { requiredBytes: 4n * MIB },
        volumeContentSource: ofVolume(source.volumeId),
      });
      assert.equal(larger.capacityBytes, 4n * MIB);
    });

    it('are refused if the requested size is less than the source', async () => {
      const source = await make('source', { capacityRange: { requiredBytes: 3n * MIB } });
      for (const volumeContentSource of [
        ofVolume(source.volumeId),
        ofSnapshot(await snapshotOf(source)),
      ]) {
        for (const capacityRange of [{ requiredBytes: 2n * MIB }, { limitBytes: 2n * MIB }])
          assert.match(
            await refusal('small', { capacityRange, volumeContentSource }),
            /^OutOfRange: .*3145728/,
          );
      }
    });

    it('are refused if the source does not exist', async () => {
      assert.equal(
        await refusal('a', { volumeContentSource: ofVolume('vol-x') }),
        'NotFound: cannot create a volume: there is no volume vol-x',
      );
      assert.equal(
        await refusal('a', { volumeContentSource: ofSnapshot('snap-x') }),
        'NotFound: cannot create a volume: there is no snapshot snap-x',
      );
      assert.equal(d.driver.volumes().length, 0);
    });

    it('are returned again after their source was deleted', async () => {
      const source = await make('source');
      const snapshot = await snapshotOf(source);
      const restored = await make('restored', { volumeContentSource: ofSnapshot(snapshot) });
      await d.ask(deleteSnapshot, { snapshotId: snapshot });
      assert.deepEqual(
        await make('restored', { volumeContentSource: ofSnapshot(snapshot) }),
        restored,
      );
    });

    it('are refused if the name exists with another source or without one', async () => {
      const source = await make('source');
      const snapshot = await snapshotOf(source);
      await make('clone', { volumeContentSource: ofVolume(source.volumeId) });
      assert.equal(
        await refusal('clone', { volumeContentSource: ofSnapshot(snapshot) }),
        `AlreadyExists: volume clone exists and was created from volume ${source.volumeId}`,
      );
      assert.match(await refusal('clone'), /^AlreadyExists/);
      assert.equal(
        await refusal('source', { volumeContentSource: ofSnapshot(snapshot) }),
        'AlreadyExists: volume source exists and was created empty',
      );
    });

    it('are refused by a driver without the capability', async () => {
      const source = await make('source');
      const snapshot = await snapshotOf(source);
      const other = await openDriver({ capabilities: ['CREATE_DELETE_VOLUME'] });
      for (const volumeContentSource of [ofVolume(source.volumeId), ofSnapshot(snapshot)])
        assert.match(
          await other.refusal(createVolume, { ...volumeRequest('a'), volumeContentSource }),
          /^InvalidArgument: this driver can.t create a volume from a (volume|snapshot)/,
        );
      await other.close();
    });

    it('are removed if the copy fails', async () => {
      const source = await make('source');
      rmSync(directory(source), { recursive: true });
      writeFileSync(directory(source), 'no directory any more');
      assert.match(
        await refusal('clone', { volumeContentSource: ofVolume(source.volumeId) }),
        /^Internal/,
      );
      assert.deepEqual(readdirSync(d.file('data')), [source.volumeId]);
      rmSync(directory(source));
      mkdirSync(directory(source));
      await make('clone', { volumeContentSource: ofVolume(source.volumeId) });
    });
  });

  describe('for block access', () => {
    const blockVolume = (name: string, more: Request = {}): Promise<Volume> =>
      make(name, { volumeCapabilities: [blockCapability], ...more });

    it('are sparse files of their capacity', async () => {
      const volume = await blockVolume('a');
      const { size, blocks } = statSync(file(volume));
      assert.deepEqual(
        [size, blocks, volume.volumeContext['directory']],
        [Number(MIB), 0, undefined],
      );
    });

    it('are refused if the name exists with the other access type', async () => {
      await blockVolume('b');
      await make('m');
      assert.equal(await refusal('b'), 'AlreadyExists: volume b exists as a block volume');
      await d.restart();
      assert.equal(
        await refusal('m', { volumeCapabilities: [blockCapability] }),
        'AlreadyExists: volume m exists as a mount volume',
      );
      assert.equal(await refusal('b'), 'AlreadyExists: volume b exists as a block volume');
    });

    it('have the bytes and the holes of their source', async () => {
      const source = await blockVolume('source', { capacityRange: { requiredBytes: 4n * MIB } });
      writeFileSync(file(source), 'at the beginning', { flag: 'r+' });
      const clone = await blockVolume('clone', {
        capacityRange: { requiredBytes: 6n * MIB },
        volumeContentSource: ofSnapshot(await snapshotOf(source)),
      });
      const { size, blocks } = statSync(file(clone));
      assert.equal(size, Number(6n * MIB));
      assert.ok(blocks * 512 < Number(2n * MIB), `${blocks} blocks`);
      assert.equal(readFileSync(file(clone)).subarray(0, 16).toString(), 'at the beginning');
      assert.ok(
        readFileSync(file(clone))
          .subarray(16)
          .equals(Buffer.alloc(Number(6n * MIB) - 16)),
      );
    });

    it('keep their contents when restored with the other access type and back', async () => {
      const image = await blockVolume('image');
      writeFileSync(file(image), 'bytes', { flag: 'r+' });
      const mounted = await make('mounted', { volumeContentSource: ofVolume(image.volumeId) });
      assert.ok(existsSync(directory(mounted)));
      const back = await blockVolume('back', { volumeContentSource: ofVolume(mounted.volumeId) });
      assert.equal(readFileSync(file(back)).subarray(0, 5).toString(), 'bytes');
    });

    it('are refused if no file can be that large', async () => {
      const large = await openDriver({ capacityBytes: 2n ** 62n });
      const request = {
        name: 'a',
        volumeCapabilities: [blockCapability],
        capacityRange: { requiredBytes: 2n ** 61n },
      };
      assert.match(
        await large.refusal(createVolume, request),
        /^OutOfRange: no file of 2305843009213693952 bytes/,
      );
      assert.deepEqual(large.driver.volumes(), []);
      await large.close();
    });

    it('are refused with both access types or none', async () => {
      const { volumeCapabilities } = volumeRequest('a');
      assert.match(
        await refusal('a', { volumeCapabilities: [blockCapability, ...volumeCapabilities] }),
        /^InvalidArgument: .* not both/,
      );
      assert.match(
        await refusal('a', { volumeCapabilities: [{ accessMode: { mode: 1 as const } }] }),
        /^InvalidArgument: .* no access type/,
      );
    });
  });

  describe('with mutable parameters', () => {
    const parametersOf = (name: string) =>
      d.driver.volumes().find((volume) => volume.name === name)?.mutableParameters;

    it('keep them over a restart and omit them from answers', async () => {
      const volume = await make('a', { mutableParameters: { iops: '100' } });
      assert.deepEqual(Object.keys(volume.volumeContext), ['directory']);
      await d.restart();
      assert.deepEqual(parametersOf('a'), { iops: '100' });
    });

    it('keep the parameters that ControllerModifyVolume does not name', async () => {
      const { volumeId } = await make('a', { mutableParameters: { iops: '100', tier: 'fast' } });
      await d.ask(controllerModifyVolume, { volumeId, mutableParameters: { iops: '200' } });
      await d.restart();
      assert.deepEqual(parametersOf('a'), { iops: '200', tier: 'fast' });
      assert.match(await d.refusal(controllerModifyVolume, { volumeId: 'vol-x' }), /^NotFound/);
      assert.match(await d.refusal(controllerModifyVolume, {}), /^InvalidArgument/);
    });

    it('keep contents and capacity when they are modified', async () => {
      const volume = await make('a');
      writeFileSync(join(directory(volume), 'hello'), 'world');
      const { availableCapacity } = await d.ask(Controller.method.getCapacity, {});
      await d.ask(controllerModifyVolume, {
        volumeId: volume.volumeId,
        mutableParameters: { iops: '1' },
      });
      assert.equal(readFileSync(join(directory(volume), 'hello'), 'utf8'), 'world');
      assert.equal(
        (await d.ask(Controller.method.getCapacity, {})).availableCapacity,
        availableCapacity,
      );
    });

    it('are refused by a driver that cannot modify volumes', async () => {
      const other = await openDriver({ capabilities: ['CREATE_DELETE_VOLUME'] });
      const request = { ...volumeRequest('a'), mutableParameters: { iops: '1' } };
      assert.match(
        await other.refusal(createVolume, request),
        /^InvalidArgument: this driver has no mutable parameters/,
      );
      await other.close();
    });

    it('are refused with a parameter that the driver does not support', async () => {
      const other = await openDriver({ mutableParameters: ['iops'] });
      const request = { ...volumeRequest('a'), mutableParameters: { iops: '1' } };
      const { volume } = await other.ask(createVolume, request);
      const strange = { mutableParameters: { colour: 'red' } };
      assert.match(
        await other.refusal(createVolume, { ...volumeRequest('b'), ...strange }),
        /^InvalidArgument: .* colour/,
      );
      assert.match(
        await other.refusal(controllerModifyVolume, {
          volumeId: volume?.volumeId ?? '',
          ...strange,
        }),
        /^InvalidArgument: .* colour/,
      );
      await other.close();
    });
  });
});
