import { listAll, listPages, type KubeClient } from '../kube/client.ts';
import { hasFinalizer } from '../kube/finalizer-patches.ts';
import { addFinalizer, removeFinalizer } from '../kube/finalizers.ts';
import { SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import type { Claim, Snapshot } from '../kube/objects.ts';
import { claims, keyOf, snapshots } from '../kube/resources.ts';
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
    const kept = page.filter((snapshot) => hasFinalizer(snapshot, SNAPSHOT_SOURCE_PROTECTION));
    // Without a watch it costs a list of all claims.
    if (kept.length === 0) return;
    // Read after the list, so that a claim created in between counts.
    const known = await restoredBy(this.#options.claims(isLeading));
    const unused = kept.filter(({ metadata }) => !known.has(keyOf(metadata)));
    if (unused.length === 0) return;
    const isUsed = await this.#readUse();
    const released: Snapshot[] = [];
    for (const snapshot of unused)
      if (!isUsed(snapshot) && isLeading())
        released.push(...(await this.#write(snapshot, removeFinalizer)));
    if (released.length === 0) return;
    // A claim that came after isUsed may have found the finalizer still there and rely on it.
    const isUsedNow = await this.#readUse();
    for (const snapshot of released)
      if (isUsedNow(snapshot)) await this.#write(snapshot, addFinalizer);
  }

  /** Asks the API server what snapshots are in use: a claim that is pending is restored from them,
   * or a claim in the journal, which may be gone itself.
   * @throws KubeError */
  async #readUse(): Promise<(snapshot: Snapshot) => boolean> {
    const { client, openSources } = this.#options;
    // Claims before the journal: a claim that is noted in between was still in the list.
    const restored = await restoredBy(listAll<Claim>(client, claims));
    const open = await openSources();
    return ({ metadata }) =>
      restored.has(keyOf(metadata)) || open.has(sourceId(snapshots, metadata));
  }

  /** Adds or removes our finalizer.
   * @returns the snapshot as it is then; none if the API server refused
   * @throws KubeError if the API server is down */
  async #write(
    object: Snapshot,
    change: typeof addFinalizer | typeof removeFinalizer,
  ): Promise<readonly Snapshot[]> {
    const { client, log } = this.#options;
    const finalizer = SNAPSHOT_SOURCE_PROTECTION;
    try {
      return [await change(client, { resource: snapshots, object, finalizer })];
    } catch (error) {
      if (!(error instanceof KubeError) || isOutage(error)) throw error;
      log[EXPECTED.has(error.code) ? 'debug' : 'warn'](
        { snapshot: keyOf(object.metadata), error: error.message },
        'the snapshot’s finalizer is left to the next sweep',
      );
      return [];
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
