import type { Logger } from '#src/runtime/log.ts';
import { claims } from '../api/kinds/claims.ts';
import { pods } from '../api/kinds/core.ts';
import { classes } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import { keyOf } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import type { Change } from '../api/store.ts';
import { textAt } from '../api/json-value.ts';
import { ControlLoop } from '../control/control-loop.ts';
import { ObjectEvents } from '../control/object-events.ts';
import { claimsOfPod, ClaimSync } from './claim-sync.ts';
import { claimKeyOf, VolumeIndex } from './volume-index.ts';
import { VolumeSync } from './volume-sync.ts';

export interface BinderOptions {
  readonly operations: Operations;
  readonly log: Logger;
  readonly nowMs?: () => number;
}

export interface Binder {
  /** Resolves when every change so far has been handled. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** Binds claims and volumes as kube-controller-manager does (the conformance tests compare them):
 * annotates claims of dynamic classes, binds both sides, releases volumes, and removes the
 * protection finalizers. It calls the API's operations in the same process, so its writes are not
 * counted as requests. It never deletes volumes: that is the provisioner's task. */
export function startBinder(options: BinderOptions): Binder {
  const nowMs = options.nowMs ?? (() => Date.now());
  return new BinderLoop(options.operations, options.log, nowMs);
}

class BinderLoop implements Binder {
  readonly #operations: Operations;
  readonly #loop: ControlLoop;
  readonly #index = new VolumeIndex();
  readonly #claimEvents: ObjectEvents;
  readonly #claimSync: ClaimSync;
  readonly #volumeSync: VolumeSync;

  constructor(operations: Operations, log: Logger, nowMs: () => number) {
    this.#operations = operations;
    this.#loop = new ControlLoop(operations, log);
    this.#claimEvents = new ObjectEvents(operations, 'persistentvolume-controller', nowMs);
    this.#claimSync = new ClaimSync(operations, this.#index, this.#claimEvents);
    this.#volumeSync = new VolumeSync(operations);
    this.#loop.listen(claims, (change) => this.#onClaim(change));
    this.#loop.listen(volumes, (change) => this.#onVolume(change));
    this.#loop.listen(classes, ({ stored }) =>
      this.#enqueueClaimsOfClass(stored.object.metadata.name),
    );
    this.#loop.listen(pods, ({ stored }) => {
      for (const key of claimsOfPod(stored.object)) this.#enqueueClaim(key);
    });
    for (const each of operations.store.collection(volumes).sorted) {
      this.#index.set(each.object);
      this.#enqueueVolume(each.key);
    }
    for (const each of operations.store.collection(claims).sorted) this.#enqueueClaim(each.key);
  }

  idle(): Promise<void> {
    return this.#loop.idle();
  }

  close(): Promise<void> {
    this.#loop.close();
    return Promise.resolve();
  }

  #onClaim({ type, stored }: Change): void {
    if (type === 'DELETED') {
      this.#claimEvents.forget(stored.object.metadata.uid);
      for (const name of this.#index.claimedBy(stored.key)) this.#enqueueVolume(name);
      const volumeName = textAt(stored.object, 'spec', 'volumeName');
      if (volumeName !== '') this.#enqueueVolume(volumeName);
      return;
    }
    this.#enqueueClaim(stored.key);
    for (const name of this.#index.claimedBy(stored.key)) this.#enqueueVolume(name);
  }

  #onVolume({ type, stored, previous }: Change): void {
    const claimKeys = new Set([
      claimKeyOf(stored.object),
      previous === undefined ? undefined : claimKeyOf(previous.object),
    ]);
    if (type === 'DELETED') this.#index.delete(stored.object.metadata.name);
    else {
      this.#index.set(stored.object);
      this.#enqueueVolume(stored.key);
      // A pending claim may be waiting for a volume that becomes free.
      if (claimKeyOf(stored.object) === undefined) this.#enqueuePendingClaims();
    }
    for (const key of claimKeys) if (key !== undefined) this.#enqueueClaim(key);
  }

  #enqueueClaimsOfClass(name: string): void {
    for (const { key, object } of this.#operations.store.collection(claims).sorted) {
      if (
        textAt(object, 'spec', 'storageClassName') === name &&
        textAt(object, 'spec', 'volumeName') === ''
      )
        this.#enqueueClaim(key);
    }
  }

  #enqueuePendingClaims(): void {
    for (const { key, object } of this.#operations.store.collection(claims).sorted) {
      if (textAt(object, 'status', 'phase') === 'Pending') this.#enqueueClaim(key);
    }
  }

  #enqueueClaim(key: string): void {
    this.#loop.enqueue(`claim ${key}`, () => {
      const [namespace = '', name = ''] = key.split('/');
      const claim = this.#operations.store
        .collection(claims)
        .objects.get(keyOf(namespace, name))?.object;
      if (claim !== undefined) this.#claimSync.sync(claim);
    });
  }

  #enqueueVolume(name: string): void {
    this.#loop.enqueue(`volume ${name}`, () => {
      const volume = this.#operations.store.collection(volumes).objects.get(name)?.object;
      if (volume !== undefined) this.#volumeSync.sync(volume);
    });
  }
}
