import { type KubeClient, listPages } from '../kube/client.ts';
import { SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { KubeObject } from '../kube/objects.ts';
import { keyOf, snapshots } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { hasFinalizer } from '../volumes/finalizer-patches.ts';
import { isPending, restoredSnapshot } from '../volumes/data-source.ts';
import type { ObjectSource } from './objects/object-source.ts';

export interface SnapshotSweepOptions {
  readonly client: Pick<KubeClient, 'list'>;
  /** The claims, among them all that are pending. */
  readonly claims: ObjectSource['claims'];
  readonly ensureQueued: (key: JobKey) => void;
  readonly isLeading: () => boolean;
  readonly intervalMs: number;
  readonly log: Logger;
}

/** Whether snapshots of a driver need sweeps. An interval of 0 or less switches them off. */
export function shouldSweep(intervalMs: number, capabilities: ReadonlySet<string>): boolean {
  return intervalMs > 0 && capabilities.has('CREATE_DELETE_SNAPSHOT');
}

/** Sweeps while this ingest leads: finds snapshots that kept our finalizer although no claim is
 * restored from them, as after a crash or the deletion of a pending claim. Each gets a job, which
 * checks again before it removes the finalizer (external-provisioner
 * pkg/controller/snapshot_finalizer_controller.go sweepOrphanedFinalizers). */
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
      for await (const { items: page } of listPages<KubeObject>(client, snapshots, { signal })) {
        await this.#enqueueOrphans(page);
        if (!isLeading()) return;
      }
    } catch (error) {
      this.#reportFailure(error);
    } finally {
      this.#isSweeping = false;
    }
  }

  async #enqueueOrphans(page: readonly KubeObject[]): Promise<void> {
    const { ensureQueued } = this.#options;
    const kept = page.filter((snapshot) => hasFinalizer(snapshot, SNAPSHOT_SOURCE_PROTECTION));
    // Without a watch it costs a list of all claims.
    if (kept.length === 0) return;
    // Read after the list, so that a claim created in between counts. The cache may be out of date;
    // the job asks the API server.
    const inUse = await this.#restored();
    for (const { metadata } of kept) {
      const { uid, namespace = '', name } = metadata;
      if (!inUse.has(keyOf(metadata))) ensureQueued({ kind: 'snapshot', uid, namespace, name });
    }
  }

  /** The snapshots that pending claims of any namespace are restored from, as "namespace/name".
   * @throws Error when this process does not lead any more */
  async #restored(): Promise<ReadonlySet<string>> {
    const { claims, isLeading } = this.#options;
    const restored = new Set<string>();
    for await (const claim of claims(isLeading)) {
      const snapshot = isPending(claim) ? restoredSnapshot(claim) : undefined;
      if (snapshot !== undefined) restored.add(snapshot);
    }
    return restored;
  }

  #reportFailure(error: unknown): void {
    const code = error instanceof KubeError ? error.code : 0;
    // 404: the snapshot CRDs are not installed, or not yet.
    if (this.#stopped.signal.aborted || code === 404 || !this.#options.isLeading()) return;
    this.#isForbidden = code === 403;
    const next = this.#isForbidden
      ? 'grant list; no sweep until this process leads again'
      : 'the next sweep tries again';
    this.#options.log.warn({ error: messageOf(error) }, `could not list the snapshots; ${next}`);
  }
}
