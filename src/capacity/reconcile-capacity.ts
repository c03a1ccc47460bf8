import type { ObjectStore } from './object-store.ts';
import type { ReadTimes, WriteLimit } from './timing.ts';
import type { RequestedBytes } from './requested-bytes.ts';
import { CsiError } from '../csi/status.ts';
import type { GatewayPool } from '../gateway-client/pool.ts';
import type { KubeClient } from '../kube/client.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../kube/kube-error.ts';
import type { Class, OwnerReference, StorageCapacity } from '../kube/objects.ts';
import type { JobKey } from '../queue/contract.ts';
import { type Outcome, WORKER_STOPPING } from '../queue/outcome.ts';
import type { Logger } from '../runtime/log.ts';
import { type CapacityItem, describeItem, hasCapacity, itemId, parseCapacityKey } from './items.ts';
import {
  type CapacityManager,
  capacityPatch,
  isManagedBy,
  itemOf,
  minusRequested,
  newCapacityObject,
  objectName,
  readCapacity,
  type ReportedCapacity,
  transformCapacity,
} from './objects.ts';
import { toSegments } from '../topology/term.ts';
import { noteReached, type Run } from '../queue/run.ts';

/** What runs of the capacity queue work with. */
export interface CapacityPorts {
  readonly kube: Pick<KubeClient, 'get' | 'create' | 'patch' | 'delete'>;
  readonly csi: Pick<GatewayPool, 'getCapacity'>;
  /** Address of the gateway that is asked. */
  readonly gateway: () => Promise<string>;
  readonly classOf: (name: string) => Class | undefined;
  readonly objects: Pick<ObjectStore, 'get' | 'resource'>;
  readonly readTimes: Pick<ReadTimes, 'note'>;
  readonly mayWrite: WriteLimit;
  /** Undefined: what is in flight is not taken off. */
  readonly requestedBytes: RequestedBytes | undefined;
  readonly manager: CapacityManager;
  readonly namespace: string;
  readonly owner: OwnerReference | undefined;
  /** Value of --capacity-for-immediate-binding. */
  readonly includesImmediate: boolean;
  readonly timeoutMs: number;
  readonly log: Logger;
}

type CapacityRun = Pick<Run, 'signal' | 'reachedDriver'>;

/** One run of a job of the capacity queue: asks the driver for a value and writes its object if the
 * value has changed, or deletes an object that stands for no value. Upstream: external-provisioner
 * pkg/capacity/capacity.go syncCapacity, deleteCapacity.
 * @throws KubeError, RecordsUnavailable */
export async function reconcileCapacity(
  ports: CapacityPorts,
  key: JobKey,
  run: CapacityRun,
): Promise<Outcome> {
  const job = parseCapacityKey(key);
  if (job === undefined) return { kind: 'done', note: 'the key is of no capacity job' };
  return job.kind === 'remove'
    ? removeObject(ports, { ...job, uid: key.uid }, run)
    : refreshValue(ports, job.item, run);
}

async function removeObject(
  ports: CapacityPorts,
  { uid, namespace, name }: { uid: string; namespace: string; name: string },
  { signal }: CapacityRun,
): Promise<Outcome> {
  await ports.mayWrite(signal);
  if (signal.aborted) return WORKER_STOPPING;
  try {
    const { resource } = ports.objects;
    await ports.kube.delete(resource, { namespace, name }, { preconditions: { uid } });
  } catch (error) {
    // Another object has the name now.
    if (!isConflict(error)) throw error;
  }
  return { kind: 'done', note: `deleted ${name}` };
}

async function refreshValue(
  ports: CapacityPorts,
  item: CapacityItem,
  run: CapacityRun,
): Promise<Outcome> {
  const cls = ports.classOf(item.className);
  if (cls === undefined || !hasCapacity(cls, ports.manager.driver, ports.includesImmediate))
    return { kind: 'done', note: 'no capacity is published for the class' };
  const answer = await askDriver(ports, item, cls, run).catch((error: unknown) => {
    if (error instanceof CsiError) return toOutcome(error, item);
    throw error;
  });
  if ('kind' in answer) return answer;
  const requested = (await ports.requestedBytes?.(item)) ?? 0n;
  const outcome = await writeValue(ports, item, minusRequested(answer, requested), run);
  if (outcome.kind === 'done')
    await ports.readTimes
      .note(itemId(item))
      .catch((error: unknown) => ports.log.debug({ err: error }, 'could not note the time'));
  return outcome;
}

/** @returns an outcome if the answer can't be published
 * @throws CsiError */
async function askDriver(
  { csi, gateway, timeoutMs }: CapacityPorts,
  item: CapacityItem,
  cls: Class,
  run: CapacityRun,
): Promise<ReportedCapacity | Outcome> {
  const call = csi.getCapacity(
    {
      parameters: { ...cls.parameters },
      accessibleTopology: { segments: toSegments(item.segment) },
    },
    { timeoutMs, gateway: await gateway() },
  );
  const read = readCapacity(await noteReached(run, call));
  return typeof read === 'string'
    ? { kind: 'retry', reason: `CSI GetCapacity for ${describeItem(item)}: ${read}` }
    : read;
}

function toOutcome(error: CsiError, item: CapacityItem): Outcome {
  const reason = `CSI GetCapacity for ${describeItem(item)}: ${error.message}`;
  if (!error.notForwarded) return { kind: 'retry', reason };
  if (error.isGatewayFull) return { kind: 'later', reason, isGatewayFull: true };
  const isDriverDown = error.codeName === 'Unavailable';
  return { kind: 'later', reason, ...(isDriverDown ? { isDriverDown } : {}) };
}

/** Creates the item's object, or updates the one that is there. */
async function writeValue(
  ports: CapacityPorts,
  item: CapacityItem,
  reported: ReportedCapacity,
  run: CapacityRun,
): Promise<Outcome> {
  const known = ports.objects.get(item);
  if (known !== undefined) return updateObject(ports, known, reported, run);
  const name = objectName(ports.manager, item);
  const created = await createObject(ports, { item, reported, name }, run);
  if (created !== 'exists') return created;
  const ref = { namespace: ports.namespace, name };
  const existing = await ports.kube.get<StorageCapacity>(ports.objects.resource, ref);
  if (existing !== undefined && standsFor(existing, item, ports.manager))
    return updateObject(ports, transformCapacity(existing), reported, run);
  // Somebody has taken our labels off the object that had the name.
  const renamed = await createObject(ports, { item, reported, name: undefined }, run);
  return renamed === 'exists'
    ? { kind: 'later', reason: `the name of the object for ${describeItem(item)} was taken` }
    : renamed;
}

function standsFor(object: StorageCapacity, item: CapacityItem, manager: CapacityManager): boolean {
  const about = itemOf(transformCapacity(object));
  return isManagedBy(object, manager) && about !== undefined && itemId(about) === itemId(item);
}

async function createObject(
  ports: CapacityPorts,
  object: { item: CapacityItem; reported: ReportedCapacity; name: string | undefined },
  { signal }: CapacityRun,
): Promise<Outcome | 'exists'> {
  const { kube, manager, namespace, owner, objects } = ports;
  await ports.mayWrite(signal);
  if (signal.aborted) return WORKER_STOPPING;
  const body = newCapacityObject(objects.resource, { ...object, manager, namespace, owner });
  try {
    const { metadata } = await kube.create<StorageCapacity>(objects.resource, namespace, body);
    return { kind: 'done', note: `created ${metadata.name}` };
  } catch (error) {
    if (isAlreadyExists(error)) return 'exists';
    throw error;
  }
}

async function updateObject(
  ports: CapacityPorts,
  known: StorageCapacity,
  reported: ReportedCapacity,
  { signal }: CapacityRun,
): Promise<Outcome> {
  const { kube, namespace, objects, owner } = ports;
  const { name } = known.metadata;
  const body = capacityPatch(known, reported, owner);
  if (body === undefined) return { kind: 'done', note: `${name} is up to date` };
  await ports.mayWrite(signal);
  if (signal.aborted) return WORKER_STOPPING;
  try {
    await kube.patch(objects.resource, { namespace, name }, { type: 'merge', body });
  } catch (error) {
    // The watch is behind; the next run finds the object as it is.
    if (isConflict(error) || isNotFound(error))
      return { kind: 'later', reason: `object ${name} changed meanwhile` };
    throw error;
  }
  return { kind: 'done', note: `updated ${name}` };
}
