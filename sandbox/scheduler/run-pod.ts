import { memberAt, textAt, type JsonObject } from '../api/json-value.ts';
import { pods } from '../api/kinds/core.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations, Place } from '../api/operations.ts';
import { timestamp } from '../api/time.ts';

/** Binds a pod to a node and, in place of a kubelet, reports its containers as running. */
export function runPod(
  operations: Operations,
  { pod, nodeName, nowMs }: { pod: KubeObject; nodeName: string; nowMs: number },
): void {
  const lastTransitionTime = timestamp(nowMs);
  operations.patch(placeOf(pod), 'merge', { spec: { nodeName } });
  const isTrue = (type: string): JsonObject => ({ type, status: 'True', lastTransitionTime });
  const containers = memberAt(pod, 'spec', 'containers');
  const status = {
    phase: 'Running',
    startTime: lastTransitionTime,
    conditions: ['PodScheduled', 'Initialized', 'ContainersReady', 'Ready'].map(isTrue),
    containerStatuses: (Array.isArray(containers) ? containers : []).map((container) => ({
      name: textAt(container, 'name'),
      image: textAt(container, 'image'),
      imageID: '',
      ready: true,
      started: true,
      restartCount: 0,
      state: { running: { startedAt: lastTransitionTime } },
    })),
  };
  operations.patch(placeOf(pod), 'merge', { status }, { subresource: 'status' });
}

function placeOf({ metadata }: KubeObject): Place {
  return { resource: pods, namespace: metadata.namespace, name: metadata.name };
}
