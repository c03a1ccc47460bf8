import { Counter, Histogram, type Registry } from 'prom-client';
import type { Claim, Volume } from '../kube/objects.ts';

/** Upstream's metrics of attempts at claims and deletions, under upstream's names
 * (sig-storage-lib-external-provisioner controller/metrics/metrics.go). */
export interface OperationCounts {
  countProvisioned(claim: Claim | undefined, tookMs: number): void;
  /** An attempt that ended without a volume: failed, refused, or left to a populator. */
  countNotProvisioned(claim: Claim | undefined): void;
  countDeleted(volume: Volume, tookMs: number): void;
  countNotDeleted(volume: Volume): void;
}

const BUCKETS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Registers the metrics. A series appears with its first value. */
export function createOperationCounts(metrics: Registry): OperationCounts {
  const registers = [metrics];
  const buckets = BUCKETS_SECONDS;
  const counter = <L extends string>(name: string, help: string, labelNames: readonly L[]) =>
    new Counter({ name, help, labelNames, registers });
  const histogram = <L extends string>(name: string, help: string, labelNames: readonly L[]) =>
    new Histogram({ name, help, labelNames, buckets, registers });

  const ofClaim = ['class', 'source'] as const;
  const provisioned = counter(
    'controller_persistentvolumeclaim_provision_total',
    'Volumes provisioned.',
    ofClaim,
  );
  const notProvisioned = counter(
    'controller_persistentvolumeclaim_provision_failed_total',
    'Attempts at a claim that ended without a volume.',
    ofClaim,
  );
  const provisionSeconds = histogram(
    'controller_persistentvolumeclaim_provision_duration_seconds',
    'How long the attempts took that ended with a volume.',
    ofClaim,
  );
  const ofVolume = ['class'] as const;
  const deleted = counter('controller_persistentvolume_delete_total', 'Volumes deleted.', ofVolume);
  const notDeleted = counter(
    'controller_persistentvolume_delete_failed_total',
    'Attempts at a deletion that failed.',
    ofVolume,
  );
  const deleteSeconds = histogram(
    'controller_persistentvolume_delete_duration_seconds',
    'How long the attempts took that ended with the volume gone.',
    ofVolume,
  );
  return {
    countProvisioned(claim, tookMs) {
      provisioned.inc(claimLabels(claim));
      provisionSeconds.observe(claimLabels(claim), tookMs / 1_000);
    },
    countNotProvisioned: (claim) => notProvisioned.inc(claimLabels(claim)),
    countDeleted({ spec }, tookMs) {
      deleted.inc({ class: spec.storageClassName ?? '' });
      deleteSeconds.observe({ class: spec.storageClassName ?? '' }, tookMs / 1_000);
    },
    countNotDeleted: ({ spec }) => notDeleted.inc({ class: spec.storageClassName ?? '' }),
  };
}

function claimLabels(claim: Claim | undefined): { class: string; source: string } {
  const { storageClassName = '', dataSource } = claim?.spec ?? {};
  return { class: storageClassName, source: dataSource?.kind ?? '' };
}
