import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  CreateVolumeResponseSchema,
  DeleteVolumeRequestSchema,
} from '#src/csi/generated/csi_pb.ts';
import { readCreatedHandle, isSingleFlight, readVolumeKey } from '#src/csi-gateway/volume-key.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
const DELETE = '/csi.v1.Controller/DeleteVolume';

describe('volumeKey', () => {
  it('finds the name among all other fields', () => {
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

  it('finds the handle of a deletion', () => {
    const request = create(DeleteVolumeRequestSchema, { volumeId: 'h', secrets: { a: 'b' } });
    assert.deepEqual(readVolumeKey(DELETE, toBinary(DeleteVolumeRequestSchema, request)), {
      kind: 'handle',
      value: 'h',
    });
  });

  it('takes the last of several, as every protobuf parser does', () => {
    const twice = Buffer.concat(
      ['one', 'two'].map((name) =>
        toBinary(CreateVolumeRequestSchema, create(CreateVolumeRequestSchema, { name })),
      ),
    );
    assert.deepEqual(readVolumeKey(CREATE, twice), { kind: 'name', value: 'two' });
  });

  it('keeps byte strings apart that are not valid text', () => {
    const keyOf = (byte: number): unknown => readVolumeKey(CREATE, Buffer.from([0x0a, 1, byte]));
    assert.notDeepEqual(keyOf(0xfe), keyOf(0xff));
  });

  it('gives none for an empty name, and throws for bytes that are no message', () => {
    assert.equal(readVolumeKey(CREATE, Buffer.alloc(0)), undefined);
    assert.throws(() => readVolumeKey(CREATE, Buffer.from([0x0a, 0x50, 1])));
    assert.throws(() => readVolumeKey(CREATE, Buffer.from([0xff, 0xff, 0xff])));
  });

  it('fences what changes a volume and nothing else', () => {
    assert.ok(
      isSingleFlight(CREATE) &&
        isSingleFlight(DELETE) &&
        isSingleFlight('/csi.v1.Controller/ControllerModifyVolume'),
    );
    assert.ok(
      !isSingleFlight('/csi.v1.Controller/GetCapacity') &&
        !isSingleFlight('/csi.v1.Identity/Probe'),
    );
  });
});

describe('createdHandle', () => {
  it('reads the handle out of an answer', () => {
    const answer = create(CreateVolumeResponseSchema, {
      volume: { capacityBytes: 1n, volumeId: 'h', volumeContext: { a: 'b' } },
    });
    assert.equal(readCreatedHandle(toBinary(CreateVolumeResponseSchema, answer)), 'h');
    assert.equal(readCreatedHandle(Buffer.alloc(0)), undefined);
  });
});
