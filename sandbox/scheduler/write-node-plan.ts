import { claims } from '../api/kinds/claims.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { Operations } from '../api/operations.ts';
import { BOUND_BY_CONTROLLER, SELECTED_NODE } from '../binder/annotations.ts';
import type { NodePlan } from './node-plan.ts';

/** Reserves the free volumes for their claims, and writes the selected node on the claims whose
 * volume has to be created. The volume binder and the provisioner do the rest. */
export function writeNodePlan(operations: Operations, plan: NodePlan): void {
  for (const { claim, volume } of plan.bindings) {
    const { kind, apiVersion, metadata } = claim;
    const { namespace, name, uid, resourceVersion } = metadata;
    operations.patch({ resource: volumes, name: volume.metadata.name }, 'merge', {
      metadata: { annotations: { [BOUND_BY_CONTROLLER]: 'yes' } },
      spec: { claimRef: { kind, apiVersion, namespace, name, uid, resourceVersion } },
    });
  }
  for (const { metadata } of plan.provisions) {
    const { namespace, name, annotations } = metadata;
    const nodeName = plan.node.metadata.name;
    if (annotations?.[SELECTED_NODE] === nodeName) continue;
    operations.patch({ resource: claims, namespace, name }, 'merge', {
      metadata: { annotations: { [SELECTED_NODE]: nodeName } },
    });
  }
}
