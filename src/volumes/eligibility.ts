import * as keys from '../kube/keys.ts';
import type { Claim, Class } from '../kube/objects.ts';
import { isKnownAs } from './provisioning-options.ts';
import type { DriverNames } from './provisioning-options.ts';

export type ClaimVerdict =
  | { readonly kind: 'provision'; readonly className: string; readonly cls: Class }
  /** Not ours, or not now. */
  | { readonly kind: 'ignore'; readonly reason: string }
  | { readonly kind: 'no-class'; readonly className: string };

/** Whether a claim is this driver's to provision now (spec 02 §3, in its order). A terminating
 * claim is, as upstream has it. */
export function judgeClaim(
  claim: Claim,
  driver: DriverNames,
  classOf: (name: string) => Class | undefined,
): ClaimVerdict {
  if ((claim.spec.volumeName ?? '') !== '')
    return { kind: 'ignore', reason: 'the claim already names its volume' };
  const annotations = claim.metadata.annotations ?? {};
  const provisioner =
    annotations[keys.STORAGE_PROVISIONER] ?? annotations[keys.BETA_STORAGE_PROVISIONER];
  if (provisioner === undefined)
    return {
      kind: 'ignore',
      reason: 'the volume controller has not annotated the claim with a provisioner',
    };
  const isMigrated = annotations[keys.MIGRATED_TO] === driver.name;
  if (provisioner !== driver.name && !(isMigrated && isKnownAs(driver, provisioner)))
    return { kind: 'ignore', reason: `the claim is for provisioner ${provisioner}` };
  const className = classNameOf(claim);
  const cls = classOf(className);
  if (cls === undefined) return { kind: 'no-class', className };
  if (
    cls.volumeBindingMode === 'WaitForFirstConsumer' &&
    (annotations[keys.SELECTED_NODE] ?? '') === ''
  ) {
    return {
      kind: 'ignore',
      reason: 'the class waits for the first consumer and no node is selected yet',
    };
  }
  if (!isKnownAs(driver, cls.provisioner))
    return {
      kind: 'ignore',
      reason: `class ${className} belongs to provisioner ${cls.provisioner}`,
    };
  return { kind: 'provision', className, cls };
}

/** The node that the scheduler chose, '' = none; the first annotation that is there counts, even if
 * empty. */
export function selectedNodeOf(claim: Claim): string {
  const annotations = claim.metadata.annotations ?? {};
  return annotations[keys.SELECTED_NODE] ?? annotations[keys.ALPHA_SELECTED_NODE] ?? '';
}

/** The class a claim asks for: the beta annotation, where present, before the field. */
export function classNameOf(claim: Claim): string {
  return claim.metadata.annotations?.[keys.BETA_STORAGE_CLASS] ?? claim.spec.storageClassName ?? '';
}
