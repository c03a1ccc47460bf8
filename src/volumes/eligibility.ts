import { hasFinalizer } from '../kube/finalizers.ts';
import * as keys from '../kube/keys.ts';
import type { Claim, Class } from '../kube/objects.ts';
import { isPending } from './data-source.ts';
import { type DriverNames, isKnownAs } from './driver-facts.ts';

export type ClaimVerdict =
  | { readonly kind: 'provision'; readonly cls: Class }
  /** The claim is not this driver's, or it is too early. */
  | { readonly kind: 'ignore'; readonly reason: string }
  | { readonly kind: 'no-class'; readonly className: string };

/** Decides whether this driver has to provision the claim now. As in upstream, a terminating claim
 * is provisioned. Upstream: sig-storage-lib-external-provisioner controller/controller.go
 * shouldProvision, and external-provisioner pkg/controller/controller.go ShouldProvision. */
export function shouldProvision(
  claim: Claim,
  driver: DriverNames,
  classOf: (name: string) => Class | undefined,
): ClaimVerdict {
  const notOurs = whyNotOurs(claim, driver);
  if (notOurs !== undefined) return { kind: 'ignore', reason: notOurs };
  const className = classNameOf(claim);
  const cls = classOf(className);
  if (cls === undefined) return { kind: 'no-class', className };
  const unfit = whyClassUnfit(cls, claim, driver);
  if (unfit !== undefined) return { kind: 'ignore', reason: unfit };
  return { kind: 'provision', cls };
}

function whyNotOurs(claim: Claim, driver: DriverNames): string | undefined {
  const { metadata, spec } = claim;
  if ((spec.volumeName ?? '') !== '') return 'the claim already names its volume';
  const annotations = metadata.annotations ?? {};
  const provisioner = provisionerOf(claim);
  if (provisioner === undefined)
    return 'the volume controller has not annotated the claim with a provisioner';
  const isMigrated =
    annotations[keys.MIGRATED_TO] === driver.name && isKnownAs(driver, provisioner);
  return provisioner === driver.name || isMigrated
    ? whyOfOtherNode(claim, driver)
    : `the claim is for provisioner ${provisioner}`;
}

/** Whether the claim waits for its volume and shows no trace of an earlier creation. A slightly old
 * copy of such a claim is good enough to begin. */
export function isNew(claim: Claim): boolean {
  const { metadata, spec } = claim;
  return (
    isPending(claim) &&
    (spec.volumeName ?? '') === '' &&
    metadata.deletionTimestamp === undefined &&
    !hasFinalizer(claim, keys.CLONE_PROTECTION)
  );
}

/** The provisioner that the volume controller has asked for the claim's volume. */
export function provisionerOf({ metadata: { annotations } }: Claim): string | undefined {
  return annotations?.[keys.STORAGE_PROVISIONER] ?? annotations?.[keys.BETA_STORAGE_PROVISIONER];
}

/** Why a claim belongs to the process of another node; undefined if its node is this process's, or
 * none is selected. */
export function whyOfOtherNode(claim: Claim, { ownNode }: DriverNames): string | undefined {
  const node = selectedNodeOf(claim);
  return ownNode === undefined || node === '' || node === ownNode
    ? undefined
    : `node ${node} is selected for the claim; this process serves only ${ownNode}`;
}

/** Whether the class waits for the first pod, and the scheduler has selected no node yet. */
export function waitsForPod(claim: Claim, { volumeBindingMode }: Class): boolean {
  const selectedNode = claim.metadata.annotations?.[keys.SELECTED_NODE] ?? '';
  return volumeBindingMode === 'WaitForFirstConsumer' && selectedNode === '';
}

function whyClassUnfit(cls: Class, claim: Claim, driver: DriverNames): string | undefined {
  const { metadata, provisioner } = cls;
  if (waitsForPod(claim, cls))
    return 'the class waits for the first consumer and no node is selected yet';
  return isKnownAs(driver, provisioner)
    ? undefined
    : `class ${metadata.name} belongs to provisioner ${provisioner}`;
}

/** The node that the scheduler selected, '' for none. The first annotation that is present counts,
 * even if it is empty. */
export function selectedNodeOf(claim: Claim): string {
  const annotations = claim.metadata.annotations ?? {};
  return annotations[keys.SELECTED_NODE] ?? annotations[keys.ALPHA_SELECTED_NODE] ?? '';
}

/** The class that a claim asks for: the beta annotation if present, else the field. */
export function classNameOf(claim: Claim): string {
  return claim.metadata.annotations?.[keys.BETA_STORAGE_CLASS] ?? claim.spec.storageClassName ?? '';
}
