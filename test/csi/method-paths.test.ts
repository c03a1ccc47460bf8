import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { DescEnum } from '@bufbuild/protobuf';
import {
  ControllerServiceCapability_RPC_TypeSchema,
  PluginCapability_Service_TypeSchema,
} from '#src/csi/generated/csi_pb.ts';
import { controllerRpcNames, csiMethodPaths, pluginServiceNames } from '#src/csi/method-paths.ts';
import { methodsByPath } from '#src/csi/methods.ts';

describe('the names in method-paths.ts', () => {
  it('are the methods of csi.proto', () =>
    assert.deepEqual([...csiMethodPaths].toSorted(), [...methodsByPath.keys()].toSorted()));

  const named = (names: readonly string[]): [number, string][] =>
    names.map((name, number) => [number, name]);
  const described = (desc: DescEnum): [number, string][] =>
    desc.values.map(({ number, name }) => [number, name]);
  it('are the plug-in services of csi.proto', () =>
    assert.deepEqual(named(pluginServiceNames), described(PluginCapability_Service_TypeSchema)));
  it('are the controller capabilities of csi.proto', () =>
    assert.deepEqual(
      named(controllerRpcNames),
      described(ControllerServiceCapability_RPC_TypeSchema),
    ));
});
