import type { Claim, Volume } from '../kube/objects.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';

/** Upstream's metrics of attempts at claims and deletions. */
export type OperationCounts = ReturnType<typeof createOperationCounts>;

/** Upstream's buckets: the defaults of its client library. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Up to an hour, in steps of 5 %, so that a quantile is at most 5 % wrong. */
const CLAIM_SECONDS = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09].concat(
  Array.from({ length: 217 }, (_, i) => Number((0.1 * 1.05 ** i).toPrecision(4))),
);
const OF_CLAIMS = ['class', 'source'] as const;
const OF_VOLUMES = ['class'] as const;

/** How long the attempt took; when the claim's job was added and its PV written, Unix ms. */
interface ProvisionTimes {
  readonly tookMs: number;
  readonly queuedMs: number;
  readonly endMs: number;
}

/** Estimates when a claim was created, Unix ms. The API server stores the second; ingest adds the
 * job some milliseconds later. If that was in the same second, takes the job's time. Otherwise
 * takes a time as long before the end of the claim's second as the job came after it, 500 ms at
 * most. */
export function createdAtMs({ metadata }: Claim, queuedMs: number): number {
  const secondMs = Date.parse(metadata.creationTimestamp ?? '');
  if (Number.isNaN(secondMs)) return queuedMs;
  const endMs = secondMs + 1_000;
  return queuedMs < endMs ? Math.max(secondMs, queuedMs) : endMs - Math.min(500, queuedMs - endMs);
}

/** Registers the metrics, with names and buckets of upstream
 * (sig-storage-lib-external-provisioner controller/metrics/metrics.go). A series appears with its
 * first value. All drivers of a process share them, since a class belongs to one driver. */
export function createOperationCounts(metrics: Registry) {
  const { counter, histogram } = metricsIn(metrics);
  const provisioned = counter(
    'controller_persistentvolumeclaim_provision_total',
    'Volumes provisioned.',
    OF_CLAIMS,
  );
  const notProvisioned = counter(
    'controller_persistentvolumeclaim_provision_failed_total',
    'Attempts at a claim that ended without a volume.',
    OF_CLAIMS,
  );
  const provisionSeconds = histogram(
    'controller_persistentvolumeclaim_provision_duration_seconds',
    'Duration of the attempts that ended with a volume.',
    { labelNames: OF_CLAIMS, buckets: SECONDS },
  );
  const fromCreation = histogram(
    'sutler_claim_created_to_volume_seconds',
    'From the creation of a claim to the write of its PersistentVolume.',
    { labelNames: OF_VOLUMES, buckets: CLAIM_SECONDS },
  );
  const fromQueue = histogram(
    'sutler_claim_queued_to_volume_seconds',
    'From when ingest saw that a claim needs a volume (annotated, or its node selected) ' +
      'to the write of its PersistentVolume.',
    { labelNames: OF_VOLUMES, buckets: CLAIM_SECONDS },
  );
  const deleted = counter(
    'controller_persistentvolume_delete_total',
    'Volumes deleted.',
    OF_VOLUMES,
  );
  const notDeleted = counter(
    'controller_persistentvolume_delete_failed_total',
    'Attempts at a deletion that failed.',
    OF_VOLUMES,
  );
  const deleteSeconds = histogram(
    'controller_persistentvolume_delete_duration_seconds',
    'Duration of the attempts that deleted the volume.',
    { labelNames: OF_VOLUMES, buckets: SECONDS },
  );
  return {
    countProvisioned(claim: Claim | undefined, { tookMs, queuedMs, endMs }: ProvisionTimes): void {
      provisioned.inc(claimLabels(claim));
      provisionSeconds.observe(claimLabels(claim), tookMs / 1_000);
      if (claim === undefined) return;
      const { class: className } = claimLabels(claim);
      const createdMs = createdAtMs(claim, queuedMs);
      fromCreation.observe({ class: className }, Math.max(0, endMs - createdMs) / 1_000);
      fromQueue.observe({ class: className }, Math.max(0, endMs - queuedMs) / 1_000);
    },
    /** Counts an attempt that ended without a volume: failed, refused, or left to a populator. */
    countNotProvisioned: (claim: Claim | undefined): void => notProvisioned.inc(claimLabels(claim)),
    countDeleted(volume: Volume, tookMs: number): void {
      deleted.inc(volumeLabels(volume));
      deleteSeconds.observe(volumeLabels(volume), tookMs / 1_000);
    },
    countNotDeleted: (volume: Volume): void => notDeleted.inc(volumeLabels(volume)),
  };
}

function claimLabels(claim: Claim | undefined): { class: string; source: string } {
  const { storageClassName = '', dataSource } = claim?.spec ?? {};
  return { class: storageClassName, source: dataSource?.kind ?? '' };
}

function volumeLabels({ spec }: Volume): { class: string } {
  return { class: spec.storageClassName ?? '' };
}
