import { Counter, Histogram, type Registry } from 'prom-client';
import type { Claim, Volume } from '../kube/objects.ts';

/** Upstream's metrics of attempts at claims and deletions. */
export type OperationCounts = ReturnType<typeof createOperationCounts>;

/** Registers the metrics, with names and buckets of upstream
 * (sig-storage-lib-external-provisioner controller/metrics/metrics.go); the buckets are
 * prom-client's defaults. A series appears with its first value. */
export function createOperationCounts(metrics: Registry) {
  const registers = [metrics];
  const ofClaims = { labelNames: ['class', 'source'] as const, registers };
  const ofVolumes = { labelNames: ['class'] as const, registers };
  const provisioned = new Counter({
    name: 'controller_persistentvolumeclaim_provision_total',
    help: 'Volumes provisioned.',
    ...ofClaims,
  });
  const notProvisioned = new Counter({
    name: 'controller_persistentvolumeclaim_provision_failed_total',
    help: 'Attempts at a claim that ended without a volume.',
    ...ofClaims,
  });
  const provisionSeconds = new Histogram({
    name: 'controller_persistentvolumeclaim_provision_duration_seconds',
    help: 'How long the attempts took that ended with a volume.',
    ...ofClaims,
  });
  const deleted = new Counter({
    name: 'controller_persistentvolume_delete_total',
    help: 'Volumes deleted.',
    ...ofVolumes,
  });
  const notDeleted = new Counter({
    name: 'controller_persistentvolume_delete_failed_total',
    help: 'Attempts at a deletion that failed.',
    ...ofVolumes,
  });
  const deleteSeconds = new Histogram({
    name: 'controller_persistentvolume_delete_duration_seconds',
    help: 'How long the attempts took that ended with the volume deleted.',
    ...ofVolumes,
  });
  return {
    countProvisioned(claim: Claim | undefined, tookMs: number): void {
      provisioned.inc(claimLabels(claim));
      provisionSeconds.observe(claimLabels(claim), tookMs / 1_000);
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
