import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  DeleteVolumeRequestSchema,
  GetCapacityResponseSchema,
  type VolumeCapability_AccessMode_Mode,
} from '#src/csi/generated/csi_pb.ts';
import { redact } from '#src/csi/redact.ts';

describe('redact', () => {
  it('replaces secrets and shows the other fields by name, sorted (Q-59)', () => {
    const request = create(CreateVolumeRequestSchema, {
      name: 'pvc-1',
      capacityRange: { requiredBytes: 10n },
      volumeCapabilities: [
        { accessType: { case: 'mount', value: { fsType: 'ext4' } }, accessMode: { mode: 1 } },
      ],
      parameters: { b: '2', a: '1' },
      secrets: { password: 'hunter2' },
    });
    const shown = redact(CreateVolumeRequestSchema, request);
    assert.equal(
      JSON.stringify(shown),
      '{"capacity_range":{"required_bytes":10},"name":"pvc-1","parameters":{"a":"1","b":"2"},' +
        '"secrets":"***stripped***",' +
        '"volume_capabilities":[{"access_mode":{"mode":"SINGLE_NODE_WRITER"},' +
        '"mount":{"fs_type":"ext4"}}]}',
    );
    assert.equal(request.secrets['password'], 'hunter2', 'the message is not changed');
  });

  it('shows empty messages, unknown enums and numbers beyond 2^53 (Q-59)', () => {
    assert.deepEqual(redact(DeleteVolumeRequestSchema, create(DeleteVolumeRequestSchema)), {});
    const odd = create(CreateVolumeRequestSchema, {
      volumeCapabilities: [{ accessMode: { mode: 99 as VolumeCapability_AccessMode_Mode } }],
      capacityRange: { limitBytes: 2n ** 60n },
    });
    assert.deepEqual(redact(CreateVolumeRequestSchema, odd), {
      capacity_range: { limit_bytes: '1152921504606846976' },
      volume_capabilities: [{ access_mode: { mode: 99 } }],
    });
    assert.deepEqual(
      redact(
        GetCapacityResponseSchema,
        create(GetCapacityResponseSchema, { maximumVolumeSize: 5n }),
      ),
      {
        maximum_volume_size: { value: 5 },
      },
    );
  });

  it('never shows fields that csi.proto does not define (Q-59)', () => {
    const wire = Buffer.concat([
      toBinary(DeleteVolumeRequestSchema, create(DeleteVolumeRequestSchema, { volumeId: 'h' })),
      Buffer.from([0xfa, 0x01, 3, 0x61, 0x62, 0x63]),
    ]);
    assert.deepEqual(
      redact(DeleteVolumeRequestSchema, fromBinary(DeleteVolumeRequestSchema, wire)),
      { volume_id: 'h' },
    );
  });
});
