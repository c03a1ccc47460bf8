import type { Claim } from '../../kube/objects.ts';
import type { Outcome } from '../../queue/outcome.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import type { VolumePlan } from '../../volumes/plan.ts';

/** What a run does with its claim if no record is open. */
export type Intent =
  /** Create the volume by this request. */
  | {
      readonly kind: 'create';
      readonly planned: VolumeRequest;
      /** The claim, if planning has changed it. */
      readonly claim?: Claim;
    }
  /** Nothing: the claim is gone, bound, or another provisioner's. */
  | { readonly kind: 'none'; readonly reason: string }
  /** End with this outcome. `message`: for the user, if there is something to tell. */
  | { readonly kind: 'wait'; readonly outcome: Outcome; readonly message?: string }
  /** Wait for the claim's class. */
  | { readonly kind: 'no-class'; readonly className: string }
  /** Leave the claim to a volume populator, ask the scheduler for another node, or tell the user
   * why no volume can be created now. */
  | Exclude<VolumePlan, { kind: 'create' }>;
