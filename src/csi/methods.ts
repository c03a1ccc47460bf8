import type { DescMethod } from '@bufbuild/protobuf';
import { Controller, GroupController, Identity, Node } from './generated/csi_pb.ts';

/** Returns the path of a method in an HTTP/2 request, such as "/csi.v1.Controller/CreateVolume". */
export function methodPath(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Descriptors of all methods in csi.proto, by path. */
export const methodsByPath: ReadonlyMap<string, DescMethod> = new Map(
  [Identity, Controller, GroupController, Node].flatMap((service) =>
    service.methods.map((method) => [methodPath(method), method] as const),
  ),
);
