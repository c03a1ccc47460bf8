import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema, DeleteVolumeRequestSchema } from '#src/csi/generated/csi_pb.ts';
import { readVolumeKey } from '#src/driver/volume-keys.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
const DELETE = '/csi.v1.Controller/DeleteVolume';

describe('readVolumeKey', () => {
  it('reads the name of a create among other fields', () => {
    const request = create(CreateVolumeRequestSchema, {
      name: 'pvc-1',
      capacityRange: { requiredBytes: 5n },
      parameters: { name: 'other' },
      secrets: { a: 'b' },
      accessibilityRequirements: { requisite: [{ segments: { z: '1' } }] },
    });
    assert.equal(readVolumeKey(CREATE, toBinary(CreateVolumeRequestSchema, request)), 'name:pvc-1');
  });

  it('reads the handle of a delete', () => {
    const request = create(DeleteVolumeRequestSchema, { volumeId: 'h', secrets: { a: 'b' } });
    assert.equal(readVolumeKey(DELETE, toBinary(DeleteVolumeRequestSchema, request)), 'handle:h');
  });

  it('takes the last value of a repeated field, as protobuf parsers do', () => {
    const twice = Buffer.concat(
      ['one', 'two'].map((name) =>
        toBinary(CreateVolumeRequestSchema, create(CreateVolumeRequestSchema, { name })),
      ),
    );
    assert.equal(readVolumeKey(CREATE, twice), 'name:two');
  });

  it('keeps different bytes apart even if they are not valid UTF-8', () => {
    const keyOf = (byte: number): unknown => readVolumeKey(CREATE, Buffer.from([0x0a, 1, byte]));
    assert.notEqual(keyOf(0xfe), keyOf(0xff));
  });

  it('returns undefined without a name and throws for malformed bytes', () => {
    assert.equal(readVolumeKey(CREATE, Buffer.alloc(0)), undefined);
    assert.throws(() => readVolumeKey(CREATE, Buffer.from([0x0a, 0x50, 1])));
    assert.throws(() => readVolumeKey(CREATE, Buffer.from([0xff, 0xff, 0xff])));
  });

  it('names no volume for methods that change none', () => {
    const request = Buffer.from([0x0a, 1, 0x61]);
    const modify = '/csi.v1.Controller/ControllerModifyVolume';
    assert.equal(readVolumeKey(modify, request), 'handle:a');
    for (const path of ['/csi.v1.Controller/GetCapacity', '/csi.v1.Identity/Probe'])
      assert.equal(readVolumeKey(path, request), undefined);
  });
});
