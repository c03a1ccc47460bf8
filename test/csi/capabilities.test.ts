import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { readControllerCapabilities, readPluginCapabilities } from '#src/csi/capabilities.ts';
import {
  ControllerGetCapabilitiesResponseSchema,
  type ControllerServiceCapability_RPC_Type,
  GetPluginCapabilitiesResponseSchema,
  type PluginCapability_Service_Type,
} from '#src/csi/generated/csi_pb.ts';

describe('capabilities', () => {
  const plugin = (...types: (number | undefined)[]): ReadonlySet<string> =>
    readPluginCapabilities(
      create(GetPluginCapabilitiesResponseSchema, {
        capabilities: types.map((type) =>
          type === undefined
            ? {}
            : {
                type: {
                  case: 'service' as const,
                  value: { type: type as PluginCapability_Service_Type },
                },
              },
        ),
      }),
    );
  const controller = (...types: (number | undefined)[]): ReadonlySet<string> =>
    readControllerCapabilities(
      create(ControllerGetCapabilitiesResponseSchema, {
        capabilities: types.map((type) =>
          type === undefined
            ? {}
            : {
                type: {
                  case: 'rpc' as const,
                  value: { type: type as ControllerServiceCapability_RPC_Type },
                },
              },
        ),
      }),
    );

  it('reads the plug-in’s services (Q-22, Q-24)', () => {
    assert.deepEqual([...plugin(1, 2)], ['CONTROLLER_SERVICE', 'VOLUME_ACCESSIBILITY_CONSTRAINTS']);
    assert.ok(!plugin(2).has('CONTROLLER_SERVICE'));
  });

  it('skips entries without a type and of other kinds (Q-25, Q-26)', () => {
    assert.deepEqual([...plugin(undefined, 1)], ['CONTROLLER_SERVICE']);
    assert.equal(plugin().size, 0);
    const expansion = create(GetPluginCapabilitiesResponseSchema, {
      capabilities: [{ type: { case: 'volumeExpansion', value: { type: 1 } } }],
    });
    assert.equal(readPluginCapabilities(expansion).size, 0);
  });

  it('reads the controller’s RPCs (Q-27, Q-28)', () => {
    assert.deepEqual([...controller(1, 8)], ['CREATE_DELETE_VOLUME', 'PUBLISH_READONLY']);
  });

  it('skips entries without a type and keeps unknown numbers (Q-30, Q-31)', () => {
    assert.deepEqual([...controller(undefined, 99)], ['99']);
    assert.equal(controller().size, 0);
  });
});
