import { performance } from 'node:perf_hooks';
import type { KubeClient } from '#src/kube/client.ts';
import { BETA_STORAGE_PROVISIONER, STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import type { Logger } from '#src/runtime/log.ts';

/** How far a claim has come. Times are in ms since it was created, as a watch showed them. */
export interface ClaimProgress {
  /** "namespace/name". */
  readonly claim: string;
  volume?: string;
  /** The volume controller has asked for a volume, by annotation. */
  requestedMs?: number;
  /** The PersistentVolume exists. */
  volumeMs?: number;
  boundMs?: number;
}

/** Follows claims and volumes through the API server, as a user would. */
export interface ProgressWatch {
  /** Starts a claim's clock; call it just before the claim is created. */
  begin(claim: string): void;
  /** Resolves when all begun claims are Bound, or when the signal aborts. */
  waitUntilBound(signal: AbortSignal): Promise<readonly ClaimProgress[]>;
  /** Resolves when no PersistentVolume is left, or when the signal aborts.
   * @returns the names of those that are left */
  waitUntilNoVolumes(signal: AbortSignal): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/** Starts to watch claims and PersistentVolumes. */
export function watchProgress(client: KubeClient, log: Logger): ProgressWatch {
  const begunMs = new Map<string, number>();
  const progress = new Map<string, ClaimProgress>();
  /** When each PersistentVolume was seen first. */
  const volumeSeenMs = new Map<string, number>();
  const checks = new Set<() => void>();
  const runChecks = (): void => checks.forEach((check) => check());

  const updateProgress = (claim: Claim): void => {
    const key = `${claim.metadata.namespace}/${claim.metadata.name}`;
    const startMs = begunMs.get(key);
    const entry = progress.get(key);
    if (startMs === undefined || entry === undefined) return;
    const elapsedMs = performance.now() - startMs;
    if (isRequested(claim)) entry.requestedMs ??= elapsedMs;
    if (claim.status?.phase !== 'Bound') return;
    const { volumeName = '' } = claim.spec;
    entry.boundMs ??= elapsedMs;
    entry.volume ??= volumeName;
    const seenMs = volumeSeenMs.get(volumeName);
    if (seenMs !== undefined) entry.volumeMs ??= seenMs - startMs;
  };
  const claimReflector = startReflector({
    client,
    log,
    resource: claims,
    transform: (raw) => raw as Claim,
    onChange: ({ type, object }) => {
      if (type !== 'deleted') updateProgress(object);
      runChecks();
    },
  });
  const volumeReflector = startReflector({
    client,
    log,
    resource: volumes,
    transform: (raw) => raw as Volume,
    onChange: ({ type, object }) => {
      if (type === 'added') volumeSeenMs.set(object.metadata.name, performance.now());
      runChecks();
    },
  });
  const waitUntil = (isDone: () => boolean, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!signal.aborted && !isDone()) return;
        checks.delete(check);
        resolve();
      };
      checks.add(check);
      signal.addEventListener('abort', check, { once: true });
      check();
    });

  return {
    begin(claim) {
      begunMs.set(claim, performance.now());
      progress.set(claim, { claim });
    },
    async waitUntilBound(signal) {
      const all = [...progress.values()];
      await waitUntil(() => all.every(({ boundMs }) => boundMs !== undefined), signal);
      return all;
    },
    async waitUntilNoVolumes(signal) {
      await volumeReflector.waitForSync(signal).catch(() => undefined);
      await waitUntil(() => volumeReflector.size === 0, signal);
      return [...volumeReflector.list()].map(({ metadata }) => metadata.name);
    },
    async stop() {
      await Promise.all([claimReflector.stop(), volumeReflector.stop()]);
    },
  };
}

function isRequested({ metadata }: Claim): boolean {
  const annotations = metadata.annotations ?? {};
  return STORAGE_PROVISIONER in annotations || BETA_STORAGE_PROVISIONER in annotations;
}
