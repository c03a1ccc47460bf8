import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import type { Logger } from '#src/runtime/log.ts';
import { ClaimClocks, type ClaimProgress } from './claim-progress.ts';
import type { Example } from './examples.ts';
import { PodClocks, type PodProgress, type WatchedPod } from './pod-progress.ts';
import { pods, statefulSets } from './resources.ts';

export interface Progress {
  readonly claims: readonly ClaimProgress[];
  readonly pods: readonly PodProgress[];
}

/** Follows claims, volumes and pods through the API server, as a user would. */
export interface ProgressWatch {
  /** Follows the claims and pods of an example; call it just before the example is created. */
  begin(example: Example): void;
  /** Resolves when all begun claims are Bound and all begun pods Running, or at the signal. */
  waitUntilReady(signal: AbortSignal): Promise<Progress>;
  /** Resolves when no PersistentVolume is left, or when the signal aborts.
   * @returns the names of those that are left */
  waitUntilNoVolumes(signal: AbortSignal): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/** Starts to watch claims, PersistentVolumes and pods. */
export function watchProgress(client: KubeClient, log: Logger): ProgressWatch {
  const claimClocks = new ClaimClocks();
  const podClocks = new PodClocks();
  const checks = new Set<() => void>();
  const runChecks = (): void => checks.forEach((check) => check());
  const claimReflector = startReflector({
    client,
    log,
    resource: claims,
    transform: (raw) => raw as Claim,
    onChange: ({ type, object }) => {
      if (type !== 'deleted') claimClocks.onClaim(object);
      runChecks();
    },
  });
  const volumeReflector = startReflector({
    client,
    log,
    resource: volumes,
    transform: (raw) => raw as Volume,
    onChange: ({ type, object }) => {
      if (type === 'added') claimClocks.onVolume(object);
      runChecks();
    },
  });
  const podReflector = startReflector({
    client,
    log,
    resource: pods,
    transform: (raw) => raw as WatchedPod,
    onChange: ({ type, object }) => {
      if (type !== 'deleted') podClocks.onPod(object);
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
    begin({ resource, namespace = '', name, object }) {
      if (resource === claims) claimClocks.begin(`${namespace}/${name}`, 'now');
      if (resource === pods) podClocks.begin(`${namespace}/${name}`, 'now');
      if (resource !== statefulSets) return;
      for (const member of membersOf(object as StatefulSet)) {
        podClocks.begin(`${namespace}/${member.pod}`, 'when seen');
        for (const claim of member.claims) claimClocks.begin(`${namespace}/${claim}`, 'when seen');
      }
    },
    async waitUntilReady(signal) {
      const isReady = (): boolean =>
        claimClocks
          .all()
          .every(({ boundMs, volumeMs }) => boundMs !== undefined && volumeMs !== undefined) &&
        podClocks.all().every(({ runningMs }) => runningMs !== undefined);
      await waitUntil(isReady, signal);
      return { claims: claimClocks.all(), pods: podClocks.all() };
    },
    async waitUntilNoVolumes(signal) {
      await volumeReflector.waitForSync(signal).catch(() => undefined);
      await waitUntil(() => volumeReflector.size === 0, signal);
      return [...volumeReflector.list()].map(({ metadata }) => metadata.name);
    },
    async stop() {
      await Promise.all([claimReflector.stop(), volumeReflector.stop(), podReflector.stop()]);
    },
  };
}

interface StatefulSet {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly replicas?: number;
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[];
  };
}

/** The names of the pods and claims that the controller creates for a StatefulSet. */
function membersOf({ metadata, spec }: StatefulSet): readonly {
  readonly pod: string;
  readonly claims: readonly string[];
}[] {
  return Array.from({ length: spec.replicas ?? 1 }, (_, ordinal) => {
    const pod = `${metadata.name}-${ordinal}`;
    const templates = spec.volumeClaimTemplates ?? [];
    return { pod, claims: templates.map((template) => `${template.metadata.name}-${pod}`) };
  });
}
