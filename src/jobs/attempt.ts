import type { Volume } from '../kube/objects.ts';
import type { Run } from '../queue/run.ts';

/** What the steps of a run need of it. */
export type RunHandle = Omit<Run, 'infeasibleBackoffMs'>;

/** A volume and the run that works on it. */
export interface VolumeRun {
  readonly volume: Volume;
  readonly run: RunHandle;
}

/** How old a read of the PV may be when a DeleteVolume is sent (invariant 6). */
export const MAX_READ_AGE_MS = 2_000;
