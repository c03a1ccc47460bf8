import type { GetCapacityResponse } from '../csi/generated/csi_pb.ts';
import * as keys from '../kube/keys.ts';
import type { OwnerReference, StorageCapacity } from '../kube/objects.ts';
import { formatBytes, parseQuantityBytes } from '../kube/quantity.ts';
import { apiVersionOf, storageCapacities } from '../kube/resources.ts';
import { omitUnset } from '../runtime/json.ts';
import { compareTexts, toSegments, toTerm } from '../topology/term.ts';
import type { CapacityItem } from './items.ts';

/* The CSIStorageCapacity objects. Upstream: external-provisioner pkg/capacity/capacity.go. */

/** The provisioner that an object belongs to. */
export interface CapacityManager {
  readonly driver: string;
  readonly managedBy: string;
}

/** The driver's answer about one item. */
export interface ReportedCapacity {
  readonly availableBytes: bigint;
  /** Undefined: the driver reports none. */
  readonly maxVolumeBytes: bigint | undefined;
}

/** Reads the driver's answer.
 * @throws Error for a negative number */
export function readCapacity(
  answer: Pick<GetCapacityResponse, 'availableCapacity' | 'maximumVolumeSize'>,
): ReportedCapacity {
  const { availableCapacity: availableBytes, maximumVolumeSize: maxVolumeBytes } = answer;
  if (availableBytes < 0n)
    throw new Error(`the driver reports a negative available_capacity, ${availableBytes}`);
  if (maxVolumeBytes !== undefined && maxVolumeBytes < 0n)
    throw new Error(`the driver reports a negative maximum_volume_size, ${maxVolumeBytes}`);
  return { availableBytes, maxVolumeBytes };
}

/** The labels of our objects. */
export function labelsOf({ driver, managedBy }: CapacityManager): Readonly<Record<string, string>> {
  return { [keys.CAPACITY_DRIVER]: driver, [keys.CAPACITY_MANAGED_BY]: managedBy };
}

/** Selects our objects. */
export function selectorOf(manager: CapacityManager): string {
  return Object.entries(labelsOf(manager))
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
}

/** The item of an object; undefined for an object that no provisioner would create. */
export function itemOf(
  object: Pick<StorageCapacity, 'storageClassName' | 'nodeTopology'>,
): CapacityItem | undefined {
  const { storageClassName: className, nodeTopology } = object;
  // Without a selector the object is for no node; with an empty selector, for all nodes.
  if (nodeTopology === undefined) return undefined;
  if ((nodeTopology.matchExpressions ?? []).length > 0) return undefined;
  return { className, segment: toTerm(nodeTopology.matchLabels ?? {}) };
}

/** Cuts an object down to the fields that are compared. */
export function transformCapacity(raw: unknown): StorageCapacity {
  const { metadata, storageClassName, nodeTopology, capacity, maximumVolumeSize } =
    raw as StorageCapacity;
  const { name, namespace, uid, resourceVersion, creationTimestamp } = metadata;
  const { labels, ownerReferences } = metadata;
  const identity = { name, namespace, uid, resourceVersion, creationTimestamp };
  return {
    metadata: omitUnset({ ...identity, labels, ownerReferences }),
    storageClassName,
    ...omitUnset({ nodeTopology, capacity, maximumVolumeSize }),
  };
}

/** Chooses which of several objects for one item to keep: the oldest, or the first of those that
 * were created in the same second. */
export function chooseObject(objects: Iterable<StorageCapacity>): StorageCapacity | undefined {
  const ageOf = ({ metadata: { creationTimestamp = '' } }: StorageCapacity) => creationTimestamp;
  return [...objects].toSorted((a, b) => compareTexts(ageOf(a), ageOf(b)))[0];
}

/** The parts of a new object. */
export interface NewCapacity {
  readonly item: CapacityItem;
  readonly reported: ReportedCapacity;
  readonly owner: OwnerReference | undefined;
  readonly manager: CapacityManager;
  readonly namespace: string;
}

/** The body that creates an object. */
export function newCapacityObject({
  item,
  reported,
  owner,
  manager,
  namespace,
}: NewCapacity): Readonly<Record<string, unknown>> {
  return {
    apiVersion: apiVersionOf(storageCapacities),
    kind: storageCapacities.kind,
    metadata: {
      generateName: 'csisc-',
      namespace,
      labels: labelsOf(manager),
      ...(owner === undefined ? {} : { ownerReferences: [owner] }),
    },
    storageClassName: item.className,
    nodeTopology: item.segment.length === 0 ? {} : { matchLabels: toSegments(item.segment) },
    ...quantitiesOf(reported),
  };
}

/** The merge patch that updates an object; undefined if it is up to date. Keeps existing owners.
 * Adds no second controller, because the API server would refuse it. */
export function capacityPatch(
  object: StorageCapacity,
  reported: ReportedCapacity,
  owner: OwnerReference | undefined,
): Readonly<Record<string, unknown>> | undefined {
  const { resourceVersion, ownerReferences = [] } = object.metadata;
  const isOwned =
    owner === undefined || ownerReferences.some(({ controller }) => controller === true);
  const isEqual =
    bytesOf(object.capacity) === reported.availableBytes &&
    bytesOf(object.maximumVolumeSize) === reported.maxVolumeBytes;
  if (isOwned && isEqual) return undefined;
  return {
    metadata: {
      // The write fails if the object has changed since the comparison.
      resourceVersion,
      ...(isOwned ? {} : { ownerReferences: [...ownerReferences, owner] }),
    },
    maximumVolumeSize: null,
    ...quantitiesOf(reported),
  };
}

function quantitiesOf({ availableBytes, maxVolumeBytes }: ReportedCapacity) {
  return {
    capacity: formatBytes(availableBytes),
    ...(maxVolumeBytes === undefined ? {} : { maximumVolumeSize: formatBytes(maxVolumeBytes) }),
  };
}

/** @returns undefined without a quantity; -1, which no answer equals, if it can't be read */
function bytesOf(quantity: string | undefined): bigint | undefined {
  if (quantity === undefined) return undefined;
  try {
    return parseQuantityBytes(quantity);
  } catch {
    return -1n;
  }
}

const BASE = 'external-provisioner';
/** Longest value of a label. */
const MAX_LENGTH = 63;
/** A hash as text, with the dash before it. */
const HASH_LENGTH = 9;

/** Value of the label for the manager of a CSIStorageCapacity object: the same as upstream's, so
 * that a cluster can change over and back.
 * @param node  the only node that the provisioner serves; undefined for all */
export function managedBy(node?: string): string {
  return node === undefined ? BASE : limitedName(BASE, node);
}

/** Joins two names to at most 63 characters. In a longer name, cuts the base and adds its hash; if
 * the suffix leaves no room for that, cuts the whole and adds its hash. Upstream:
 * external-provisioner pkg/owner (cmd/csi-provisioner/util.go GetNameWithMaxLength). */
export function limitedName(base: string, suffix: string): string {
  const whole = base === '' ? suffix : `${base}-${suffix}`;
  if (whole.length <= MAX_LENGTH) return whole;
  const baseLength = MAX_LENGTH - HASH_LENGTH - 1 - suffix.length;
  if (baseLength > 0) return `${base.slice(0, baseLength)}-${hashText(base)}-${suffix}`;
  const hash = hashText(whole);
  const kept = base.slice(0, MAX_LENGTH - HASH_LENGTH);
  return kept === '' ? hash : `${kept}-${hash}`;
}

/** 32-bit FNV-1a of the text's bytes, as hex digits. */
function hashText(text: string): string {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return (hash >>> 0).toString(16);
}
