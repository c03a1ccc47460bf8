import { performance } from 'node:perf_hooks';
import type { KubeClient } from '#src/kube/client.ts';
import { BETA_STORAGE_PROVISIONER, STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import type { Logger } from '#src/runtime/log.ts';

/** When each thing happened to a claim, in ms since it was created. */
export interface Journey {
  /** "namespace/name". */
  readonly claim: string;
  volume?: string;
  annotatedMs?: number;
  writtenMs?: number;
  boundMs?: number;
}

export interface JourneyWatch {
  /** Begins a claim's clock; call it just before the claim is created. */
  begin(claim: string): void;
  /** Resolves when all begun claims are Bound, or when the signal aborts. */
  bound(signal: AbortSignal): Promise<readonly Journey[]>;
  /** Resolves when no PV is left, or when the signal aborts; the names of those that are. */
  emptied(signal: AbortSignal): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/** Follows claims and volumes from outside, as a user would. */
export function watchJourneys(client: KubeClient, log: Logger): JourneyWatch {
  const started = new Map<string, number>();
  const journeys = new Map<string, Journey>();
  const writtenAt = new Map<string, number>();
  const waiting = new Set<() => void>();
  const changed = (): void => waiting.forEach((check) => check());

  const claimView = startReflector({
    client,
    log,
    resource: claims,
    transform: (raw) => raw as Claim,
    onChange: ({ type, object }) => {
      const key = `${object.metadata.namespace}/${object.metadata.name}`;
      const startMs = started.get(key);
      const journey = journeys.get(key);
      if (type === 'deleted' || startMs === undefined || journey === undefined) return;
      const elapsedMs = performance.now() - startMs;
      const annotations = object.metadata.annotations ?? {};
      if (STORAGE_PROVISIONER in annotations || BETA_STORAGE_PROVISIONER in annotations)
        journey.annotatedMs ??= elapsedMs;
      if (object.status?.phase === 'Bound') {
        journey.boundMs ??= elapsedMs;
        if (object.spec.volumeName !== undefined) journey.volume ??= object.spec.volumeName;
        const written = writtenAt.get(object.spec.volumeName ?? '');
        if (written !== undefined) journey.writtenMs ??= written - startMs;
      }
      changed();
    },
  });
  const volumeView = startReflector({
    client,
    log,
    resource: volumes,
    transform: (raw) => raw as Volume,
    onChange: ({ type, object }) => {
      if (type === 'added') writtenAt.set(object.metadata.name, performance.now());
      changed();
    },
  });
  const until = (isDone: () => boolean, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!signal.aborted && !isDone()) return;
        waiting.delete(check);
        resolve();
      };
      waiting.add(check);
      signal.addEventListener('abort', check, { once: true });
      check();
    });

  return {
    begin(claim) {
      started.set(claim, performance.now());
      journeys.set(claim, { claim });
    },
    async bound(signal) {
      await until(
        () => [...journeys.values()].every(({ boundMs }) => boundMs !== undefined),
        signal,
      );
      return [...journeys.values()];
    },
    async emptied(signal) {
      await volumeView.synced(signal).catch(() => undefined);
      await until(() => volumeView.size === 0, signal);
      return [...volumeView.list()].map(({ metadata }) => metadata.name);
    },
    async stop() {
      await Promise.all([claimView.stop(), volumeView.stop()]);
    },
  };
}
