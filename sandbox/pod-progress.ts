import { performance } from 'node:perf_hooks';
import type { ObjectMeta } from '#src/kube/objects.ts';

/** How far a pod has come. */
export interface PodProgress {
  /** "namespace/name". */
  readonly pod: string;
  /** "namespace/name" of its claims. */
  claims: readonly string[];
  /** Since it was created, as a watch showed it. */
  runningMs?: number;
  node?: string;
}

/** What the watch keeps of a pod. */
export interface WatchedPod {
  readonly metadata: ObjectMeta;
  readonly spec: {
    readonly nodeName?: string;
    readonly volumes?: readonly {
      readonly persistentVolumeClaim?: { readonly claimName: string };
    }[];
  };
  readonly status?: { readonly phase?: string };
}

/** The progress of pods. */
export class PodClocks {
  readonly #startedMs = new Map<string, number>();
  readonly #progress = new Map<string, PodProgress>();

  /** Starts a pod's clock, or has it started when the pod is first seen. */
  begin(pod: string, when: 'now' | 'when seen'): void {
    this.#progress.set(pod, { pod, claims: [] });
    if (when === 'now') this.#startedMs.set(pod, performance.now());
  }

  onPod({ metadata, spec, status }: WatchedPod): void {
    const key = `${metadata.namespace}/${metadata.name}`;
    const entry = this.#progress.get(key);
    if (entry === undefined) return;
    const nowMs = performance.now();
    const startedMs = this.#startedMs.get(key) ?? nowMs;
    this.#startedMs.set(key, startedMs);
    entry.claims = (spec.volumes ?? []).flatMap(({ persistentVolumeClaim: claim }) =>
      claim === undefined ? [] : [`${metadata.namespace}/${claim.claimName}`],
    );
    if (spec.nodeName !== undefined) entry.node = spec.nodeName;
    if (status?.phase === 'Running') entry.runningMs ??= nowMs - startedMs;
  }

  all(): readonly PodProgress[] {
    return [...this.#progress.values()];
  }
}
