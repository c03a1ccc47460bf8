import { type Clock, systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';
import { memberAt, textAt } from '../api/json-value.ts';
import { claims } from '../api/kinds/claims.ts';
import { nodes, pods } from '../api/kinds/core.ts';
import { classes } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { SELECTED_NODE } from '#src/kube/keys.ts';
import { ControlLoop } from '../control/control-loop.ts';
import { ObjectEvents } from '../control/object-events.ts';
import { FULL, whyNotOn } from './node-fit.ts';
import { type PodClaims, readPodClaims } from './pod-claims.ts';
import { runPod } from './run-pod.ts';

export interface Scheduler {
  close(): Promise<void>;
}

/** What the scheduler remembers of a pod without a node. */
interface Attempt {
  /** The chosen node, while the claims of the pod are being bound. */
  nodeName: string | undefined;
  /** Nodes where a volume could not be created. */
  readonly fullNodes: Set<string>;
  isWaiting: boolean;
}

/** When to try a pod again on nodes where its volume could not be created. */
const RETRY_MS = 5_000;

/** Gives each pod the first node that fits, by name: it writes that node on the pod's claims of
 * WaitForFirstConsumer classes, waits until they are Bound, and then binds the pod. If the
 * provisioner removes the node from a claim, it chooses the next one. */
export function startScheduler(options: {
  readonly operations: Operations;
  readonly log: Logger;
  readonly clock?: Clock;
}): Scheduler {
  return new SchedulerLoop(options.operations, options.log, options.clock ?? systemClock);
}

class SchedulerLoop implements Scheduler {
  readonly #operations: Operations;
  readonly #clock: Clock;
  readonly #loop: ControlLoop;
  readonly #events: ObjectEvents;
  /** By the UID of the pod. */
  readonly #attempts = new Map<string, Attempt>();
  readonly #closing = new AbortController();

  constructor(operations: Operations, log: Logger, clock: Clock) {
    this.#operations = operations;
    this.#clock = clock;
    this.#loop = new ControlLoop(operations, log);
    this.#events = new ObjectEvents(operations, 'default-scheduler', () => clock.nowMs());
    for (const resource of [pods, claims, volumes, classes, nodes])
      this.#loop.listen(resource, ({ type, stored }) => {
        if (type === 'DELETED') this.#forget(stored.object);
        this.#enqueueAll();
      });
    this.#enqueueAll();
  }

  close(): Promise<void> {
    this.#closing.abort();
    this.#loop.close();
    return Promise.resolve();
  }

  #enqueueAll(): void {
    for (const { key, object } of this.#operations.store.collection(pods).sorted)
      if (needsNode(object)) this.#loop.enqueue(key, () => this.#schedule(key));
  }

  #schedule(key: string): void {
    const pod = this.#operations.store.collection(pods).objects.get(key)?.object;
    if (pod === undefined || !needsNode(pod)) return;
    const attempt = this.#attemptOf(pod);
    const found = readPodClaims(this.#operations, pod);
    if (typeof found === 'string') this.#refuse(pod, `${this.#noneOf()} ${found}.`);
    else if (attempt.nodeName === undefined) this.#choose(pod, found, attempt);
    else this.#proceed(pod, found, { attempt, nodeName: attempt.nodeName });
  }

  /** Binds a pod to its chosen node when its claims are Bound. If they can't be Bound there,
   * chooses another node. */
  #proceed(
    pod: KubeObject,
    found: PodClaims,
    { attempt, nodeName }: { readonly attempt: Attempt; readonly nodeName: string },
  ): void {
    const refused = found.waiting.find(
      ({ claim }) => claim.metadata.annotations?.[SELECTED_NODE] !== nodeName,
    );
    if (refused !== undefined) {
      attempt.fullNodes.add(nodeName);
      const why = `provisioning failed for PVC "${refused.claim.metadata.name}"`;
      this.#refuse(pod, `running PreBind plugin "VolumeBinding": binding volumes: ${why}`);
      return this.#choose(pod, found, attempt);
    }
    const node = this.#operations.store.collection(nodes).objects.get(nodeName)?.object;
    if (node === undefined || whyNotOn(node, pod, found) !== undefined)
      return this.#choose(pod, found, attempt);
    if (found.waiting.length === 0) this.#run(pod, nodeName);
  }

  #choose(pod: KubeObject, found: PodClaims, attempt: Attempt): void {
    attempt.nodeName = undefined;
    const reasons: string[] = [];
    for (const { object: node } of this.#operations.store.collection(nodes).sorted) {
      const { name } = node.metadata;
      const why = attempt.fullNodes.has(name) ? FULL : whyNotOn(node, pod, found);
      if (why === undefined) return this.#take(pod, found, { attempt, nodeName: name });
      reasons.push(why);
    }
    const counts = [...new Set(reasons)].map(
      (reason) => `${reasons.filter((each) => each === reason).length} ${reason}`,
    );
    this.#refuse(pod, `${this.#noneOf()} ${counts.sort().join(', ')}.`);
    if (attempt.fullNodes.size > 0) this.#retryLater(attempt);
  }

  /** Selects the node for the claims whose volume has to be created. */
  #take(
    pod: KubeObject,
    { waiting }: PodClaims,
    { attempt, nodeName }: { readonly attempt: Attempt; readonly nodeName: string },
  ): void {
    attempt.nodeName = nodeName;
    for (const { claim } of waiting) {
      const { namespace, name } = claim.metadata;
      this.#operations.patch({ resource: claims, namespace, name }, 'merge', {
        metadata: { annotations: { [SELECTED_NODE]: nodeName } },
      });
    }
    if (waiting.length === 0) this.#run(pod, nodeName);
  }

  #run(pod: KubeObject, nodeName: string): void {
    const { namespace = '', name } = pod.metadata;
    runPod(this.#operations, { pod, nodeName, nowMs: this.#clock.nowMs() });
    const message = `Successfully assigned ${namespace}/${name} to ${nodeName}`;
    this.#events.record(pod, 'Normal', 'Scheduled', message);
    this.#forget(pod);
  }

  #refuse(pod: KubeObject, message: string): void {
    this.#events.record(pod, 'Warning', 'FailedScheduling', message);
  }

  /** Tries the full nodes again after RETRY_MS, because a volume may have been deleted. */
  #retryLater(attempt: Attempt): void {
    if (attempt.isWaiting) return;
    attempt.isWaiting = true;
    void this.#clock.sleep(RETRY_MS, this.#closing.signal).then(() => {
      attempt.isWaiting = false;
      attempt.fullNodes.clear();
      this.#enqueueAll();
    });
  }

  #attemptOf({ metadata }: KubeObject): Attempt {
    const attempt = this.#attempts.get(metadata.uid) ?? {
      nodeName: undefined,
      fullNodes: new Set<string>(),
      isWaiting: false,
    };
    this.#attempts.set(metadata.uid, attempt);
    return attempt;
  }

  #forget({ metadata }: KubeObject): void {
    this.#attempts.delete(metadata.uid);
    this.#events.forget(metadata.uid);
  }

  /** "0/4 nodes are available:". */
  #noneOf(): string {
    return `0/${this.#operations.store.collection(nodes).objects.size} nodes are available:`;
  }
}

function needsNode(pod: KubeObject): boolean {
  return (
    textAt(pod, 'spec', 'nodeName') === '' &&
    pod.metadata.deletionTimestamp === undefined &&
    memberAt(pod, 'spec', 'schedulerName') === 'default-scheduler'
  );
}
