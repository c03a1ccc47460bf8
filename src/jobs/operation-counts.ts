import { Counter, Histogram } from 'prom-client';
import type { Registry } from 'prom-client';
import type { Claim, Volume } from '../kube/objects.ts';

/** Upstream's counts of what was provisioned and deleted, under its names (spec 05 §2.2). */
export interface OperationCounts {
  provisioned(claim: Claim | undefined, tookMs: number): void;
  /** Every other end of an attempt at a claim: errors, refusals, what is left to a populator. */
  notProvisioned(claim: Claim | undefined): void;
  deleted(volume: Volume, tookMs: number): void;
  notDeleted(volume: Volume): void;
}

const BUCKETS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Series appear with their first use. */
export function createOperationCounts(metrics: Registry): OperationCounts {
  const registers = [metrics];
  const claimLabels = ['class', 'source'] as const;
  const provisioned = new Counter({
    name: 'controller_persistentvolumeclaim_provision_total',
    help: 'Volumes provisioned.',
    labelNames: claimLabels,
    registers,
  });
  const failed = new Counter({
    name: 'controller_persistentvolumeclaim_provision_failed_total',
    help: 'Attempts at a claim that ended without a volume.',
    labelNames: claimLabels,
    registers,
  });
  const provisionSeconds = new Histogram({
    name: 'controller_persistentvolumeclaim_provision_duration_seconds',
    help: 'How long the attempts took that ended with a volume.',
    labelNames: claimLabels,
    buckets: BUCKETS_SECONDS,
    registers,
  });
  const deleted = new Counter({
    name: 'controller_persistentvolume_delete_total',
    help: 'Volumes deleted.',
    labelNames: ['class'],
    registers,
  });
  const notDeleted = new Counter({
    name: 'controller_persistentvolume_delete_failed_total',
    help: 'Attempts at a deletion that failed.',
    labelNames: ['class'],
    registers,
  });
  const deleteSeconds = new Histogram({
    name: 'controller_persistentvolume_delete_duration_seconds',
    help: 'How long the attempts took that ended with the volume gone.',
    labelNames: ['class'],
    buckets: BUCKETS_SECONDS,
    registers,
  });
  const ofClaim = (claim: Claim | undefined): { class: string; source: string } => ({
    class: claim?.spec.storageClassName ?? '',
    source: claim?.spec.dataSource?.kind ?? '',
  });
  const ofVolume = (volume: Volume): { class: string } => ({
    class: volume.spec.storageClassName ?? '',
  });
  return {
    provisioned(claim, tookMs) {
      provisioned.inc(ofClaim(claim));
      provisionSeconds.observe(ofClaim(claim), tookMs / 1_000);
    },
    notProvisioned: (claim) => failed.inc(ofClaim(claim)),
    deleted(volume, tookMs) {
      deleted.inc(ofVolume(volume));
      deleteSeconds.observe(ofVolume(volume), tookMs / 1_000);
    },
    notDeleted: (volume) => notDeleted.inc(ofVolume(volume)),
  };
}
