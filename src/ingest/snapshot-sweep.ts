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
  /** The claims, among them all that are pending. It may be out of date. */
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

/** Snapshots that lose their finalizer before it is asked again which are in use: few, so that one
 * of them that is wanted meanwhile lacks it for a short time only. */
const AT_ONCE = 5;
/** Of adding a finalizer to a snapshot that changes meanwhile. */
const MAX_TRIES = 5;

type IsUsed = (snapshot: Snapshot) => boolean;

/** Sweeps while this ingest leads: removes our finalizer from snapshots that kept it although no
 * claim is restored from them, as after a crash or the deletion of a pending claim
 * (external-provisioner pkg/controller/snapshot_finalizer_controller.go
 * sweepOrphanedFinalizers). What the API server refuses is left to the next sweep. */
export class SnapshotSweep {
  readonly #options: SnapshotSweepOptions;
  readonly #stopped = new AbortController();
  /** When the next sweep is due, by performance.now(). */
  #dueMs: number;
  /** Set when the API server refuses to list snapshots. No sweep from then on, until `begin`. */
  #isForbidden = false;
  #isSweeping = false;

  constructor(options: SnapshotSweepOptions) {
    this.#options = options;
    this.#dueMs = performance.now() + options.intervalMs;
  }

  /** This ingest leads from now on: sweeps at once, even if an earlier sweep was refused. */
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
    // Without a watch it costs a list of all claims.
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

  /** Removes our finalizer, and adds it again where a claim came meanwhile: its worker may have
   * found the finalizer still there and rely on it.
   * @returns what is in use by then; undefined if nothing was removed
   * @throws KubeError if the API server is down */
  async #release(unused: readonly Snapshot[]): Promise<IsUsed | undefined> {
    // Where nobody knows what is in use, everything may be.
    let isUsed: IsUsed = () => true;
    const released = new Set<Snapshot>();
    try {
      for (const snapshot of unused) {
        if (!this.#options.isLeading()) break;
        // Before the request, which may have an effect even if there is no answer.
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

  /** Asks the API server what snapshots are in use: a claim that is pending is restored from them,
   * or a claim in the journal, which may be gone itself.
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
        'the snapshot’s finalizer is left to the next sweep',
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
        'the snapshot’s finalizer is left out until the claim that needs it is tried again',
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

/** The snapshots that those of the claims which are pending are restored from, as
 * "namespace/name". */
async function restoredBy(found: AsyncIterable<Claim>): Promise<ReadonlySet<string>> {
  const restored = new Set<string>();
  for await (const claim of found) {
    const snapshot = isPending(claim) ? restoredSnapshot(claim) : undefined;
    if (snapshot !== undefined) restored.add(snapshot);
  }
  return restored;
}
