import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import {
  hasController,
  hasPlugin,
  readControllerCapabilities,
  readPluginCapabilities,
} from '#src/csi/capabilities.ts';
import {
  ControllerGetCapabilitiesResponseSchema,
  GetPluginCapabilitiesResponseSchema,
  type ControllerServiceCapability_RPC_Type,
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

  it('collects the plug-in’s services (Q-22, Q-24)', () => {
    assert.deepEqual([...plugin(1, 2)], ['CONTROLLER_SERVICE', 'VOLUME_ACCESSIBILITY_CONSTRAINTS']);
    assert.ok(!plugin(2).has('CONTROLLER_SERVICE'));
  });

  it('passes over entries without a type, other kinds, and none at all (Q-25, Q-26)', () => {
    assert.deepEqual([...plugin(undefined, 1)], ['CONTROLLER_SERVICE']);
    assert.equal(plugin().size, 0);
    const expansion = create(GetPluginCapabilitiesResponseSchema, {
      capabilities: [{ type: { case: 'volumeExpansion', value: { type: 1 } } }],
    });
    assert.equal(readPluginCapabilities(expansion).size, 0);
  });

  it('collects the controller’s RPCs (Q-27, Q-28)', () => {
    assert.deepEqual([...controller(1, 8)], ['CREATE_DELETE_VOLUME', 'PUBLISH_READONLY']);
  });

  it('passes over entries without a type, keeps a number it does not know (Q-30, Q-31)', () => {
    assert.deepEqual([...controller(undefined, 99)], ['99']);
    assert.equal(controller().size, 0);
  });

  it('answers questions about a driver', () => {
    const driver = { plugin: plugin(1), controller: controller(1, 4) };
    assert.ok(hasPlugin(driver, 'CONTROLLER_SERVICE') && hasController(driver, 'GET_CAPACITY'));
    assert.ok(
      !hasPlugin(driver, 'GROUP_CONTROLLER_SERVICE') && !hasController(driver, 'LIST_VOLUMES'),
    );
  });
});
