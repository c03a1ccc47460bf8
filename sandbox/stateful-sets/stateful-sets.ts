import type { Logger } from '#src/runtime/log.ts';
import { type Json, memberAt, objectAt, textAt } from '../api/json-value.ts';
import { statefulSets, templatesOf } from '../api/kinds/apps.ts';
import { claims } from '../api/kinds/claims.ts';
import { pods } from '../api/kinds/core.ts';
import { keyOf, type KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { ControlLoop } from '../control/control-loop.ts';
import { claimFor, podFor } from './set-members.ts';

export interface StatefulSetsOptions {
  readonly operations: Operations;
  readonly log: Logger;
}

export interface StatefulSets {
  /** Resolves when every change so far has been handled. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** Creates the claims and pods of StatefulSets as kube-controller-manager does: one pod after the
 * other unless podManagementPolicy is Parallel, and the claims before their pod. A smaller or
 * deleted set loses pods; its claims stay. It does not replace pods when a template changes, and
 * knows no other retention policy than Retain. */
export function startStatefulSets(options: StatefulSetsOptions): StatefulSets {
  return new StatefulSetLoop(options);
}

class StatefulSetLoop implements StatefulSets {
  readonly #operations: Operations;
  readonly #loop: ControlLoop;

  constructor({ operations, log }: StatefulSetsOptions) {
    this.#operations = operations;
    this.#loop = new ControlLoop(operations, log);
    this.#loop.listen(statefulSets, ({ stored }) => this.#enqueue(stored.key));
    this.#loop.listen(pods, ({ stored }) => {
      const { namespace, ownerReferences = [] } = stored.object.metadata;
      for (const owner of ownerReferences)
        if (textAt(owner, 'kind') === 'StatefulSet')
          this.#enqueue(keyOf(namespace, textAt(owner, 'name')));
    });
    for (const { key } of operations.store.collection(statefulSets).sorted) this.#enqueue(key);
  }

  idle(): Promise<void> {
    return this.#loop.idle();
  }

  close(): Promise<void> {
    this.#loop.close();
    return Promise.resolve();
  }

  #enqueue(key: string): void {
    this.#loop.enqueue(key, () => {
      const set = this.#operations.store.collection(statefulSets).objects.get(key)?.object;
      this.#deletePods(key, set);
      if (set === undefined) return;
      this.#create(set);
      this.#writeStatus(set);
    });
  }

  /** Deletes the pods that the set no longer has, the highest ordinal first: all pods of a set that
   * was deleted (in a cluster the garbage collector does that). */
  #deletePods(key: string, set: KubeObject | undefined): void {
    const kept = new Set(set === undefined ? [] : ordinalsOf(set).map((i) => podName(set, i)));
    const surplus = this.#podsOfKey(key).filter(
      ({ metadata }) => !kept.has(metadata.name) || !isOwnedBy(metadata.ownerReferences, set),
    );
    for (const { metadata } of surplus.toReversed())
      this.#operations.delete({
        resource: pods,
        namespace: metadata.namespace,
        name: metadata.name,
      });
  }

  #create(set: KubeObject): void {
    const isOrdered = textAt(set, 'spec', 'podManagementPolicy') !== 'Parallel';
    for (const ordinal of ordinalsOf(set)) {
      const { namespace = '' } = set.metadata;
      for (const template of templatesOf(set)) {
        const claim = claimFor(set, template, ordinal);
        const name = textAt(claim, 'metadata', 'name');
        const existing = this.#operations.store.collection(claims).objects;
        if (!existing.has(keyOf(namespace, name)))
          this.#operations.create(claims, namespace, claim);
      }
      const key = keyOf(namespace, podName(set, ordinal));
      const pod =
        this.#operations.store.collection(pods).objects.get(key)?.object ??
        this.#operations.create(pods, namespace, podFor(set, ordinal)).object;
      if (isOrdered && !isReady(pod)) return;
    }
  }

  #writeStatus(set: KubeObject): void {
    const { namespace, name, generation } = set.metadata;
    const own = this.#podsOfKey(keyOf(namespace, name));
    const ready = own.filter(isReady).length;
    const status = {
      observedGeneration: generation,
      replicas: own.length,
      readyReplicas: ready,
      availableReplicas: ready,
      currentReplicas: own.length,
      updatedReplicas: own.length,
    };
    this.#operations.patch(
      { resource: statefulSets, namespace, name },
      'merge',
      { status },
      { subresource: 'status' },
    );
  }

  /** The pods whose controller is the set of that key, in the order of their ordinals. */
  #podsOfKey(key: string): readonly KubeObject[] {
    const ordinalOf = ({ metadata }: KubeObject) => Number(/\d+$/.exec(metadata.name)?.[0]);
    return [...this.#operations.store.collection(pods).objects.values()]
      .map(({ object }) => object)
      .filter(({ metadata }) =>
        (metadata.ownerReferences ?? []).some(
          (owner) =>
            textAt(owner, 'kind') === 'StatefulSet' &&
            keyOf(metadata.namespace, textAt(owner, 'name')) === key,
        ),
      )
      .sort((a, b) => ordinalOf(a) - ordinalOf(b));
  }
}

function ordinalsOf(set: KubeObject): readonly number[] {
  const start = Number(memberAt(set, 'spec', 'ordinals', 'start') ?? 0);
  return Array.from(
    { length: Number(memberAt(set, 'spec', 'replicas') ?? 1) },
    (_, i) => start + i,
  );
}

function podName(set: KubeObject, ordinal: number): string {
  return `${set.metadata.name}-${ordinal}`;
}

function isOwnedBy(owners: readonly Json[] | undefined, set: KubeObject | undefined): boolean {
  return (owners ?? []).some((owner) => textAt(owner, 'uid') === set?.metadata.uid);
}

function isReady(pod: KubeObject): boolean {
  const conditions = objectAt(pod, 'status')['conditions'];
  return (
    Array.isArray(conditions) &&
    conditions.some((each) => textAt(each, 'type') === 'Ready' && textAt(each, 'status') === 'True')
  );
}
