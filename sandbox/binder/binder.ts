import type { Logger } from '#src/runtime/log.ts';
import { textAt } from '../api/json-value.ts';
import { claims } from '../api/kinds/claims.ts';
import { pods } from '../api/kinds/core.ts';
import { classes } from '../api/kinds/storage.ts';
import { volumes } from '../api/kinds/volumes.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import type { Change } from '../api/store.ts';
import { ControlLoop } from '../control/control-loop.ts';
import { ObjectEvents } from '../control/object-events.ts';
import { claimsOfPod, ClaimSync } from './claim-sync.ts';
import { VolumeIndex } from './volume-index.ts';
import { syncVolume } from './volume-sync.ts';

export interface Binder {
  /** Resolves when every change so far has been handled. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** Binds claims and volumes as kube-controller-manager does (the conformance tests compare them):
 * annotates claims of dynamic classes, binds both sides, releases volumes, and removes the
 * protection finalizers. It calls the API's operations in the same process. It never deletes
 * volumes: that is the provisioner's task. */
export function startBinder(options: {
  readonly operations: Operations;
  readonly log: Logger;
}): Binder {
  return new BinderLoop(options.operations, options.log);
}

class BinderLoop implements Binder {
  readonly #operations: Operations;
  readonly #loop: ControlLoop;
  readonly #index = new VolumeIndex();
  readonly #claimEvents: ObjectEvents;
  readonly #claimSync: ClaimSync;

  constructor(operations: Operations, log: Logger) {
    this.#operations = operations;
    this.#loop = new ControlLoop(operations, log);
    const component = 'persistentvolume-controller';
    this.#claimEvents = new ObjectEvents(operations, component, () => Date.now());
    this.#claimSync = new ClaimSync(operations, this.#index, this.#claimEvents);
    this.#loop.listen(claims, (change) => this.#onClaim(change));
    this.#loop.listen(volumes, (change) => this.#onVolume(change));
    this.#loop.listen(classes, ({ stored }) =>
      this.#enqueueClaims(
        ({ spec }) => textAt(spec, 'storageClassName') === stored.object.metadata.name,
      ),
    );
    this.#loop.listen(pods, ({ stored }) => {
      for (const key of claimsOfPod(stored.object)) this.#enqueueClaim(key);
    });
    for (const { key, object } of operations.store.collection(volumes).sorted) {
      this.#index.set(object);
      this.#enqueueVolume(key);
    }
    this.#enqueueClaims(() => true);
  }

  idle(): Promise<void> {
    return this.#loop.idle();
  }

  close(): Promise<void> {
    this.#loop.close();
    return Promise.resolve();
  }

  #onClaim({ type, stored }: Change): void {
    for (const name of this.#index.claimedBy(stored.key)) this.#enqueueVolume(name);
    if (type !== 'DELETED') this.#enqueueClaim(stored.key);
    else this.#claimEvents.forget(stored.object.metadata.uid);
  }

  #onVolume({ type, stored }: Change): void {
    const claimKey = this.#index.claimOf(stored.object);
    if (type === 'DELETED') this.#index.delete(stored.key);
    else {
      this.#index.set(stored.object);
      this.#enqueueVolume(stored.key);
    }
    if (claimKey !== '') this.#enqueueClaim(claimKey);
    // A pending claim may be waiting for a volume that becomes free.
    else this.#enqueueClaims(({ status }) => textAt(status, 'phase') === 'Pending');
  }

  #enqueueClaims(isMeant: (claim: KubeObject) => boolean): void {
    for (const { key, object } of this.#operations.store.collection(claims).sorted)
      if (isMeant(object)) this.#enqueueClaim(key);
  }

  #enqueueClaim(key: string): void {
    this.#loop.enqueue(`claim ${key}`, () => {
      const claim = this.#operations.store.collection(claims).objects.get(key)?.object;
      if (claim !== undefined) this.#claimSync.sync(claim);
    });
  }

  #enqueueVolume(name: string): void {
    this.#loop.enqueue(`volume ${name}`, () => {
      const volume = this.#operations.store.collection(volumes).objects.get(name)?.object;
      if (volume !== undefined) syncVolume(this.#operations, volume);
    });
  }
}
