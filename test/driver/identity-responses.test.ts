import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { readControllerCapabilities, readPluginCapabilities } from '#src/csi/capabilities.ts';
import {
  ControllerGetCapabilitiesResponseSchema,
  GetPluginCapabilitiesResponseSchema,
  GetPluginInfoResponseSchema,
  ProbeResponseSchema,
} from '#src/csi/generated/csi_pb.ts';
import {
  decodeControllerRpcs,
  decodePluginInfo,
  decodePluginServices,
  decodeProbeReady,
} from '#src/driver/messages.ts';

describe('decoding by field number', () => {
  for (const ready of [true, false, undefined]) {
    it(`reads ready=${ready} as the descriptor does`, () => {
      const message = create(ProbeResponseSchema, ready === undefined ? {} : { ready });
      assert.equal(decodeProbeReady(toBinary(ProbeResponseSchema, message)), ready);
    });
  }

  it('reads name and version and skips the manifest', () => {
    const message = create(GetPluginInfoResponseSchema, {
      name: 'größe.test',
      vendorVersion: 'v1',
      manifest: { a: 'b' },
    });
    assert.deepEqual(decodePluginInfo(toBinary(GetPluginInfoResponseSchema, message)), {
      name: 'größe.test',
      vendorVersion: 'v1',
    });
    assert.deepEqual(decodePluginInfo(new Uint8Array(0)), { name: '', vendorVersion: '' });
  });

  it('reads plug-in services as the descriptor does (Q-22, Q-24, Q-25, Q-26)', () => {
    const lists: MessageInitShape<typeof GetPluginCapabilitiesResponseSchema>['capabilities'][] = [
      [],
      [
        { type: { case: 'service', value: { type: 1 } } },
        { type: { case: 'service', value: { type: 2 } } },
      ],
      [
        {},
        { type: { case: 'volumeExpansion', value: { type: 1 } } },
        { type: { case: 'service', value: {} } },
      ],
      [{ type: { case: 'service', value: { type: 99 as 1 } } }],
    ];
    for (const capabilities of lists) {
      const message = create(GetPluginCapabilitiesResponseSchema, {
        capabilities: capabilities ?? [],
      });
      assert.deepEqual(
        decodePluginServices(toBinary(GetPluginCapabilitiesResponseSchema, message)),
        readPluginCapabilities(message),
      );
    }
  });

  it('reads controller capabilities as the descriptor does (Q-27, Q-28, Q-30, Q-31)', () => {
    const lists: MessageInitShape<
      typeof ControllerGetCapabilitiesResponseSchema
    >['capabilities'][] = [
      [],
      ([1, 3, 8, 14] as const).map((type) => ({ type: { case: 'rpc', value: { type } } }) as const),
      [
        {},
        { type: { case: 'rpc', value: {} } },
        { type: { case: 'rpc', value: { type: 77 as 1 } } },
      ],
    ];
    for (const capabilities of lists) {
      const message = create(ControllerGetCapabilitiesResponseSchema, {
        capabilities: capabilities ?? [],
      });
      assert.deepEqual(
        decodeControllerRpcs(toBinary(ControllerGetCapabilitiesResponseSchema, message)),
        readControllerCapabilities(message),
      );
    }
  });

  it('throws for bytes that are not a message', () => {
    for (const read of [
      decodeProbeReady,
      decodePluginInfo,
      decodePluginServices,
      decodeControllerRpcs,
    ])
      assert.throws(() => read(Uint8Array.of(0x0a, 0xff)));
  });
});
