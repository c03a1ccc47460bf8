import { listAll, listPages, type KubeClient } from '../kube/client.ts';
import { addFinalizer, hasFinalizer, removeFinalizer } from '../kube/finalizers.ts';
import { SNAPSHOT_SOURCE_PROTECTION as finalizer } from '../kube/keys.ts';
import { isConflict, isOutage, KubeError } from '../kube/kube-error.ts';
import type { Claim, Snapshot } from '../kube/objects.ts';
import { claims, keyOf, selectName, snapshots } from '../kube/resources.ts';
import { sourceId } from '../journal/list-journal.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { isPending, restoredSnapshot } from '../volumes/data-source.ts';
import type { ObjectSource } from './objects/object-source.ts';

export interface SnapshotSweepOptions {
  readonly client: Pick<KubeClient, 'list' | 'patch' | 'update'>;
  /** The claims, including all pending ones; may be out of date. */
  readonly claims: ObjectSource['claims'];
  /** The snapshots and claims that claims in the journal are created from, by sourceId. */
  readonly openSources: () => Promise<ReadonlySet<string>>;
  readonly isLeading: () => boolean;
  readonly intervalMs: number;
  readonly log: Logger;
}

/** Whether snapshots of a driver need sweeps. An interval of 0 or less switches them off. */
export function shouldSweep(intervalMs: number, capabilities: ReadonlySet<string>): boolean {
  return intervalMs > 0 && capabilities.has('CREATE_DELETE_SNAPSHOT');
}

/** Refusals that need no warning: ingest may not write snapshots (403), or the snapshot is gone
 * (404) or changed (409). */
const EXPECTED: ReadonlySet<number> = new Set([403, 404, 409]);

/** How many snapshots lose their finalizer before the sweep asks again which are in use: few, so
 * that a snapshot that a new claim needs lacks its finalizer only briefly. */
const AT_ONCE = 5;
/** How often to try to add a finalizer to a snapshot that keeps changing. */
const MAX_TRIES = 5;

type IsUsed = (snapshot: Snapshot) => boolean;

/** While this ingest leads, removes our finalizer from snapshots that no claim is restored from,
 * for example after a crash or the deletion of a pending claim (external-provisioner
 * pkg/controller/snapshot_finalizer_controller.go sweepOrphanedFinalizers). If the API server
 * refuses, the next sweep tries again. */
export class SnapshotSweep {
  readonly #options: SnapshotSweepOptions;
  readonly #stopped = new AbortController();
  /** When the next sweep is due, by performance.now(). */
  #dueMs: number;
  /** The API server has refused to list snapshots: no sweep until `begin`. */
  #isForbidden = false;
  #isSweeping = false;

  constructor(options: SnapshotSweepOptions) {
    this.#options = options;
    this.#dueMs = performance.now() + options.intervalMs;
  }

  /** Sweeps at once, even if an earlier sweep was refused; to be called by a new leader. */
  begin(): void {
    this.#isForbidden = false;
    this.#dueMs = -Infinity;
    this.tick();
  }

  /** Sweeps when the interval is over; to be called every second. */
  tick(): void {
    if (performance.now() < this.#dueMs) return;
    this.#dueMs = performance.now() + this.#options.intervalMs;
    void this.#sweep();
  }

  stop(): void {
    this.#stopped.abort();
  }

  async #sweep(): Promise<void> {
    const { client, isLeading } = this.#options;
    const { signal } = this.#stopped;
    if (this.#isForbidden || this.#isSweeping || !isLeading()) return;
    this.#isSweeping = true;
    try {
      for await (const { items: page } of listPages<Snapshot>(client, snapshots, { signal })) {
        await this.#releaseUnused(page);
        if (!isLeading()) return;
      }
    } catch (error) {
      this.#reportFailure(error);
    } finally {
      this.#isSweeping = false;
    }
  }

  async #releaseUnused(page: readonly Snapshot[]): Promise<void> {
    const { isLeading } = this.#options;
    const kept = page.filter((snapshot) => hasFinalizer(snapshot, finalizer));
    // Without a watch the next step lists all claims.
    if (kept.length === 0) return;
    // Read after the list, so that a claim created in between counts.
    const known = await restoredBy(this.#options.claims(isLeading));
    const unused = kept.filter(({ metadata }) => !known.has(keyOf(metadata)));
    if (unused.length === 0) return;
    let isUsed = await this.#readUse();
    for (let from = 0; from < unused.length && isLeading(); from += AT_ONCE) {
      const few = unused.slice(from, from + AT_ONCE).filter((snapshot) => !isUsed(snapshot));
      isUsed = (await this.#release(few)) ?? isUsed;
    }
  }

  /** Removes our finalizer. Adds it again if a new claim uses the snapshot, because the claim's
   * worker may have seen the finalizer and rely on it.
   * @returns what is in use after the removal; undefined if nothing was removed
   * @throws KubeError if the API server is down */
  async #release(unused: readonly Snapshot[]): Promise<IsUsed | undefined> {
    // If the API server can't be asked, every snapshot may be in use.
    let isUsed: IsUsed = () => true;
    const released = new Set<Snapshot>();
    try {
      for (const snapshot of unused) {
        if (!this.#options.isLeading()) break;
        // Added before the request, which may have an effect even if there is no answer.
        released.add(snapshot);
        if (!(await this.#remove(snapshot))) released.delete(snapshot);
      }
      if (released.size === 0) return undefined;
      isUsed = await this.#readUse();
      return isUsed;
    } finally {
      for (const snapshot of released) if (isUsed(snapshot)) await this.#addAgain(snapshot);
    }
  }

  /** Asks the API server which snapshots are in use: the sources of pending claims, and of claims
   * in the journal, which may be gone themselves.
   * @throws KubeError */
  async #readUse(): Promise<IsUsed> {
    const { client, openSources } = this.#options;
    // Claims before the journal: a claim that is noted in between was still in the list.
    const restored = await restoredBy(listAll<Claim>(client, claims));
    const open = await openSources();
    return ({ metadata }) =>
      restored.has(keyOf(metadata)) || open.has(sourceId(snapshots, metadata));
  }

  /** @returns false if the API server refuses it
   * @throws KubeError if the API server is down */
  async #remove(object: Snapshot): Promise<boolean> {
    const { client, log } = this.#options;
    try {
      await removeFinalizer(client, { resource: snapshots, object, finalizer });
      return true;
    } catch (error) {
      if (!(error instanceof KubeError) || isOutage(error)) throw error;
      log[EXPECTED.has(error.code) ? 'debug' : 'warn'](
        { snapshot: keyOf(object.metadata), error: error.message },
        'could not remove the snapshot’s finalizer; the next sweep tries again',
      );
      return false;
    }
  }

  /** Adds our finalizer to the snapshot as it is now, unless it has it. Never throws. */
  async #addAgain(snapshot: Snapshot, tries = 1): Promise<void> {
    const { client, log } = this.#options;
    const { namespace, name, uid } = snapshot.metadata;
    const one = { namespace, fieldSelector: selectName(name) };
    try {
      for await (const object of listAll<Snapshot>(client, snapshots, one))
        if (object.metadata.uid === uid)
          await addFinalizer(client, { resource: snapshots, object, finalizer });
    } catch (error) {
      if (isConflict(error) && tries < MAX_TRIES) return this.#addAgain(snapshot, tries + 1);
      log.warn(
        { snapshot: keyOf(snapshot.metadata), error: messageOf(error) },
        'could not add the snapshot’s finalizer again; the next run of the claim that needs it does',
      );
    }
  }

  #reportFailure(error: unknown): void {
    const code = error instanceof KubeError ? error.code : 0;
    // 404: the snapshot CRDs are not installed, or not yet.
    if (this.#stopped.signal.aborted || code === 404 || !this.#options.isLeading()) return;
    this.#isForbidden = code === 403;
    const next = this.#isForbidden
      ? 'grant list; no sweep until this process leads again'
      : 'the next sweep tries again';
    this.#options.log.warn({ error: messageOf(error) }, `could not sweep the snapshots; ${next}`);
  }
}

/** The snapshots that pending claims are restored from, as "namespace/name". */
async function restoredBy(found: AsyncIterable<Claim>): Promise<ReadonlySet<string>> {
  const restored = new Set<string>();
  for await (const claim of found) {
    const snapshot = isPending(claim) ? restoredSnapshot(claim) : undefined;
    if (snapshot !== undefined) restored.add(snapshot);
  }
  return restored;
}
