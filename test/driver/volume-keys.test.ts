import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  CreateVolumeResponseSchema,
  DeleteVolumeRequestSchema,
} from '#src/csi/generated/csi_pb.ts';
import { readCreatedHandle, readVolumeKey } from '#src/driver/volume-keys.ts';

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
    assert.deepEqual(readVolumeKey(CREATE, toBinary(CreateVolumeRequestSchema, request)), {
      kind: 'name',
      value: 'pvc-1',
    });
  });

  it('reads the handle of a delete', () => {
    const request = create(DeleteVolumeRequestSchema, { volumeId: 'h', secrets: { a: 'b' } });
    assert.deepEqual(readVolumeKey(DELETE, toBinary(DeleteVolumeRequestSchema, request)), {
      kind: 'handle',
      value: 'h',
    });
  });

  it('takes the last value of a repeated field, as protobuf parsers do', () => {
    const twice = Buffer.concat(
      ['one', 'two'].map((name) =>
        toBinary(CreateVolumeRequestSchema, create(CreateVolumeRequestSchema, { name })),
      ),
    );
    assert.deepEqual(readVolumeKey(CREATE, twice), { kind: 'name', value: 'two' });
  });

  it('keeps different bytes apart even if they are not valid UTF-8', () => {
    const keyOf = (byte: number): unknown => readVolumeKey(CREATE, Buffer.from([0x0a, 1, byte]));
    assert.notDeepEqual(keyOf(0xfe), keyOf(0xff));
  });

  it('returns undefined without a name and throws for malformed bytes', () => {
    assert.equal(readVolumeKey(CREATE, Buffer.alloc(0)), undefined);
    assert.throws(() => readVolumeKey(CREATE, Buffer.from([0x0a, 0x50, 1])));
    assert.throws(() => readVolumeKey(CREATE, Buffer.from([0xff, 0xff, 0xff])));
  });

  it('names no volume for methods that change none', () => {
    const request = Buffer.from([0x0a, 1, 0x61]);
    const modify = '/csi.v1.Controller/ControllerModifyVolume';
    assert.deepEqual(readVolumeKey(modify, request), { kind: 'handle', value: 'a' });
    for (const path of ['/csi.v1.Controller/GetCapacity', '/csi.v1.Identity/Probe'])
      assert.equal(readVolumeKey(path, request), undefined);
  });
});

describe('readCreatedHandle', () => {
  it('reads the handle from a response', () => {
    const answer = create(CreateVolumeResponseSchema, {
      volume: { capacityBytes: 1n, volumeId: 'h', volumeContext: { a: 'b' } },
    });
    assert.equal(readCreatedHandle(toBinary(CreateVolumeResponseSchema, answer)), 'h');
    assert.equal(readCreatedHandle(Buffer.alloc(0)), undefined);
  });
});
