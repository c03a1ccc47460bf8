import type { DescMethod } from '@bufbuild/protobuf';
import { Controller, GroupController, Identity, Node } from './generated/csi_pb.ts';

/** Method path on the wire: "/csi.v1.Controller/CreateVolume". */
export function methodPath(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Every method that csi.proto knows, by path. */
export const methodsByPath: ReadonlyMap<string, DescMethod> = new Map(
  [Identity, Controller, GroupController, Node].flatMap((service) =>
    service.methods.map((method) => [methodPath(method), method] as const),
  ),
);
