import { type Clock, systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';
import { memberAt, textAt } from '../api/json-value.ts';
import { claims } from '../api/kinds/claims.ts';
import { nodes, pods } from '../api/kinds/core.ts';
import { classes, csiDrivers, storageCapacities } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import type { Change } from '../api/store.ts';
import { SELECTED_NODE } from '../binder/annotations.ts';
import { claimsOfPod } from '../binder/claim-sync.ts';
import { claimKeyOf } from '../binder/volume-index.ts';
import { ControlLoop } from '../control/control-loop.ts';
import { ObjectEvents } from '../control/object-events.ts';
import { isReachable } from './node-affinity.ts';
import { type NodePlan, planOn } from './node-plan.ts';
import { type PodClaims, readPodClaims, type WaitingClaim } from './pod-claims.ts';
import { type PendingPod, PendingPods } from './pending-pods.ts';
import { markUnschedulable, runPod } from './run-pod.ts';
import { type PlacedPod, spreadOrder } from './spread.ts';
import { writeNodePlan } from './write-node-plan.ts';

export interface SchedulerOptions {
  readonly operations: Operations;
  readonly log: Logger;
  readonly clock?: Clock;
}

export interface Scheduler {
  /** Resolves when every change so far has been handled. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** Waiting time before a pod is tried again on nodes where its volume could not be created. */
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 10_000;

/** Gives pods a node, by their volumes alone, as kube-scheduler's VolumeBinding plugin does: for a
 * claim of a WaitForFirstConsumer class it writes the selected node, waits until the claim is
 * Bound, and then binds the pod. If the provisioner removes the selected node, it chooses another
 * one. It knows neither CPU and memory nor taints and affinities, except a pod's nodeSelector. */
export function startScheduler(options: SchedulerOptions): Scheduler {
  return new SchedulerLoop(options);
}

class SchedulerLoop implements Scheduler {
  readonly #operations: Operations;
  readonly #clock: Clock;
  readonly #loop: ControlLoop;
  readonly #events: ObjectEvents;
  readonly #pending = new PendingPods();
  readonly #closing = new AbortController();

  constructor({ operations, log, clock = systemClock }: SchedulerOptions) {
    this.#operations = operations;
    this.#clock = clock;
    this.#loop = new ControlLoop(operations, log);
    this.#events = new ObjectEvents(operations, 'default-scheduler', () => clock.nowMs());
    this.#loop.listen(pods, (change) => this.#onPod(change));
    this.#loop.listen(claims, ({ stored }) => this.#enqueue(this.#pending.usersOf(stored.key)));
    this.#loop.listen(volumes, (change) => this.#onVolume(change));
    for (const resource of [nodes, classes, csiDrivers, storageCapacities])
      this.#loop.listen(resource, () => this.#enqueue(this.#pending.keys()));
    for (const { key, object } of operations.store.collection(pods).sorted)
      if (needsNode(object)) this.#pending.add(key, claimsOfPod(object));
    this.#enqueue(this.#pending.keys());
  }

  idle(): Promise<void> {
    return this.#loop.idle();
  }

  close(): Promise<void> {
    this.#closing.abort();
    this.#loop.close();
    return Promise.resolve();
  }

  #onPod({ type, stored }: Change): void {
    const { key, object } = stored;
    if (type === 'DELETED') this.#events.forget(object.metadata.uid);
    if (type !== 'DELETED' && needsNode(object)) {
      this.#pending.add(key, claimsOfPod(object));
      this.#enqueue([key]);
    } else this.#pending.delete(key);
  }

  #onVolume({ type, stored }: Change): void {
    const claimKey = claimKeyOf(stored.object);
    if (type === 'DELETED') this.#pending.forgetFullNodes();
    const isForAll = type === 'DELETED' || claimKey === undefined;
    this.#enqueue(isForAll ? this.#pending.keys() : this.#pending.usersOf(claimKey));
  }

  #enqueue(keys: Iterable<string>): void {
    for (const key of keys) this.#loop.enqueue(key, () => this.#schedule(key));
  }

  #schedule(key: string): void {
    const pod = this.#operations.store.collection(pods).objects.get(key)?.object;
    const pending = this.#pending.get(key);
    if (pod === undefined || pending === undefined) return;
    const found = readPodClaims(this.#operations, pod);
    if (typeof found === 'string') this.#refuse(pod, `${this.#noneOf()} ${found}.`);
    else if (pending.nodeName === undefined) this.#choose(pod, found, pending);
    else this.#proceed(pod, found, { pending, nodeName: pending.nodeName });
  }

  /** Binds a pod to its chosen node when its claims are Bound. If the claims can't be Bound there,
   * a node is chosen again. */
  #proceed(
    pod: KubeObject,
    found: PodClaims,
    { pending, nodeName }: { readonly pending: PendingPod; readonly nodeName: string },
  ): void {
    const node = this.#operations.store.collection(nodes).objects.get(nodeName)?.object;
    const planOf = ({ claim }: WaitingClaim) => pending.plans.get(claim.metadata.uid);
    const refused = found.waiting.find(
      (each) =>
        planOf(each) === 'create' && each.claim.metadata.annotations?.[SELECTED_NODE] !== nodeName,
    );
    if (refused !== undefined) {
      pending.fullNodes.add(nodeName);
      const { name, annotations } = refused.claim.metadata;
      const what =
        annotations === undefined ? 'selectedNode annotation reset' : 'provisioning failed';
      const why = `${what} for PVC "${name}"`;
      this.#refuse(pod, `running PreBind plugin "VolumeBinding": binding volumes: ${why}`);
    } else if (
      node !== undefined &&
      found.volumes.every((volume) => isReachable(volume, node)) &&
      found.waiting.every((each) => planOf(each) !== undefined)
    ) {
      if (found.waiting.length === 0) this.#bind(pod, nodeName);
      return;
    }
    pending.nodeName = undefined;
    this.#choose(pod, found, pending);
  }

  #choose(pod: KubeObject, found: PodClaims, pending: PendingPod): void {
    const all = this.#nodes();
    const plans = new Map<KubeObject, NodePlan>();
    const reasons: string[] = [];
    for (const node of all) {
      const plan = planOn(this.#operations, { pod, claims: found }, node);
      if (typeof plan === 'string') reasons.push(plan);
      else if (pending.fullNodes.has(node.metadata.name))
        reasons.push('node(s) did not have enough free storage');
      else plans.set(node, plan);
    }
    const placed = this.#placedPods();
    const [best] = spreadOrder(pod, [...plans.keys()], { nodes: all, placed });
    const plan = best === undefined ? undefined : plans.get(best);
    if (plan === undefined) {
      this.#refuse(pod, describeReasons(this.#noneOf(), reasons));
      if (pending.fullNodes.size > 0) this.#retryLater(pending);
      return;
    }
    this.#take(pod, plan, pending);
  }

  #take(pod: KubeObject, plan: NodePlan, pending: PendingPod): void {
    pending.nodeName = plan.node.metadata.name;
    pending.plans = new Map([
      ...plan.bindings.map(({ claim }) => [claim.metadata.uid, 'bind'] as const),
      ...plan.provisions.map(({ metadata }) => [metadata.uid, 'create'] as const),
    ]);
    if (plan.bindings.length + plan.provisions.length === 0) this.#bind(pod, pending.nodeName);
    else writeNodePlan(this.#operations, plan);
  }

  #bind(pod: KubeObject, nodeName: string): void {
    const { namespace = '', name } = pod.metadata;
    runPod(this.#operations, { pod, nodeName, nowMs: this.#clock.nowMs() });
    const message = `Successfully assigned ${namespace}/${name} to ${nodeName}`;
    this.#events.record(pod, 'Normal', 'Scheduled', message);
  }

  #refuse(pod: KubeObject, message: string): void {
    this.#events.record(pod, 'Warning', 'FailedScheduling', message);
    markUnschedulable(this.#operations, { pod, message, nowMs: this.#clock.nowMs() });
  }

  /** Tries the full nodes again after a while: a volume may have been deleted meanwhile. */
  #retryLater(pending: PendingPod): void {
    if (pending.isWaiting) return;
    pending.isWaiting = true;
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** pending.retries, LONGEST_RETRY_MS);
    pending.retries += 1;
    void this.#clock.sleep(delayMs, this.#closing.signal).then(() => {
      pending.isWaiting = false;
      pending.fullNodes.clear();
      this.#enqueue([pending.key]);
    });
  }

  #nodes(): readonly KubeObject[] {
    return this.#operations.store.collection(nodes).sorted.map(({ object }) => object);
  }

  /** "0/4 nodes are available:". */
  #noneOf(): string {
    return `0/${this.#operations.store.collection(nodes).objects.size} nodes are available:`;
  }

  #placedPods(): readonly PlacedPod[] {
    return [...this.#operations.store.collection(pods).objects].flatMap(([key, { object }]) => {
      const nodeName =
        textAt(object, 'spec', 'nodeName') || (this.#pending.get(key)?.nodeName ?? '');
      return nodeName === '' || hasEnded(object) ? [] : [{ pod: object, nodeName }];
    });
  }
}

function needsNode(pod: KubeObject): boolean {
  return (
    textAt(pod, 'spec', 'nodeName') === '' &&
    pod.metadata.deletionTimestamp === undefined &&
    !hasEnded(pod) &&
    memberAt(pod, 'spec', 'schedulerName') === 'default-scheduler'
  );
}

function hasEnded(pod: KubeObject): boolean {
  const phase = textAt(pod, 'status', 'phase');
  return phase === 'Succeeded' || phase === 'Failed';
}

/** "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) did not …". */
function describeReasons(noneOf: string, reasons: readonly string[]): string {
  if (reasons.length === 0) return 'no nodes available to schedule pods';
  const counts = new Map<string, number>();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const texts = [...counts].map(([reason, count]) => `${count} ${reason}`).sort();
  return `${noneOf} ${texts.join(', ')}.`;
}
