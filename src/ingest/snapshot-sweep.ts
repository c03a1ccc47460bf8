import type { KubeClient } from '../kube/client.ts';
import { SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { KubeObject } from '../kube/objects.ts';
import { keyOf, snapshots } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import { timerMs } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';

export interface SnapshotSweepOptions {
  readonly client: Pick<KubeClient, 'list'>;
  /** The snapshots that pending claims are restored from, as "namespace/name". */
  readonly restored: () => ReadonlySet<string>;
  readonly touch: (key: JobKey) => void;
  readonly isLeading: () => boolean;
  readonly driver: { readonly controllerCapabilities: ReadonlySet<string> };
  /** Pause between two sweeps; 0 or less: none are made. */
  readonly intervalMs: number;
  readonly log: Logger;
}

/** Looks for snapshots that keep our finalizer although nobody restores from them: a crash, a
 * failed claim or one that was removed leaves it behind. */
export interface SnapshotSweep {
  /** Sweeps at once, as at the beginning of a leadership, also where an earlier one was refused. */
  begin(): void;
  stop(): void;
}

const PAGE_SIZE = 500;

/** Sweeps while this process leads (spec 04 E). Each snapshot found gets a job, which looks once
 * more before it changes anything.
 * @returns undefined where it is switched off, or the driver makes no snapshots */
export function startSnapshotSweep(options: SnapshotSweepOptions): SnapshotSweep | undefined {
  const { client, isLeading, log } = options;
  if (
    options.intervalMs <= 0 ||
    !options.driver.controllerCapabilities.has('CREATE_DELETE_SNAPSHOT')
  )
    return undefined;
  const stopped = new AbortController();
  let isForbidden = false;
  let running: Promise<void> | undefined;

  const lookThrough = (items: readonly KubeObject[]): void => {
    // Asked after the list: a claim that came in between is seen. The view may lag all the same, so
    // the job asks the server.
    const restored = options.restored();
    for (const { metadata } of items) {
      if (
        metadata.finalizers?.includes(SNAPSHOT_SOURCE_PROTECTION) !== true ||
        restored.has(keyOf(metadata))
      )
        continue;
      options.touch({
        kind: 'snapshot',
        uid: metadata.uid,
        namespace: metadata.namespace ?? '',
        name: metadata.name,
      });
    }
  };
  const sweep = async (): Promise<void> => {
    let continueToken: string | undefined;
    do {
      const page = await client.list<KubeObject>(snapshots, {
        limit: PAGE_SIZE,
        signal: stopped.signal,
        ...(continueToken === undefined ? {} : { continueToken }),
      });
      lookThrough(page.items);
      continueToken = page.continueToken;
    } while (continueToken !== undefined && isLeading());
  };
  const failed = (error: unknown): void => {
    const code = error instanceof KubeError ? error.code : 0;
    // The kind is not installed, or not yet.
    if (stopped.signal.aborted || code === 404) return;
    isForbidden = code === 403;
    const rest = isForbidden
      ? 'no sweep is made until this process leads anew (grant list)'
      : 'the next sweep tries again';
    log.warn(
      { error: error instanceof Error ? error.message : String(error) },
      `the snapshots could not be listed; ${rest}`,
    );
  };
  const once = (): void => {
    if (isForbidden || !isLeading()) return;
    running ??= sweep()
      .catch(failed)
      .finally(() => (running = undefined));
  };
  const timer = setInterval(once, timerMs(options.intervalMs));
  return {
    begin() {
      isForbidden = false;
      once();
    },
    stop() {
      clearInterval(timer);
      stopped.abort('stopped');
    },
  };
}
