import { setTimeout as delay } from 'node:timers/promises';
import { parseQuantityBytes } from '#src/kube/quantity.ts';
import type { Fields } from '../../conformance/connection.ts';
import { segmentsOf, type Segments } from './cluster-nodes.ts';
import type { SeenCapacity } from './observer.ts';
import type { Scene } from './scene.ts';
import type { CallAnswer } from './scripted-driver.ts';

export const GIB = 1024n ** 3n;
const DRIVER_LABEL = 'csi.storage.k8s.io/drivername';
const MANAGER_LABEL = 'csi.storage.k8s.io/managed-by';

function pathOf(scene: Scene): string {
  const { markerNamespace } = scene.stage;
  return `/apis/storage.k8s.io/v1/namespaces/${markerNamespace}/csistoragecapacities`;
}

/** A class whose claims wait for their pod; questions for its capacity name the scenario. */
export function lateClass(parameters: Readonly<Record<string, string>> = {}) {
  return (scene: Scene): Fields => ({
    volumeBindingMode: 'WaitForFirstConsumer',
    parameters: { scenario: scene.className, ...parameters },
  });
}

/** Answers GetCapacity with the room of the zone in the question. */
export function room(
  byZone: Readonly<Record<string, bigint>>,
  more: Readonly<Record<string, unknown>> = {},
): CallAnswer {
  return (call) => {
    if (call.method !== 'GetCapacity') return undefined;
    const { segments = {} } = call.capacity.accessibleTopology ?? {};
    const found = Object.values(segments).find((value) => value in byZone) ?? '';
    return { availableCapacity: byZone[found] ?? 0n, ...more };
  };
}

/** Waits until the scenario has that many objects, each with that capacity if one is given. */
export function published(count: number, bytes?: bigint): (scene: Scene) => Promise<void> {
  return (scene) =>
    scene.until(`${count} capacities ${bytes ?? ''}`, () => {
      const all = scene.capacities();
      return (
        all.length === count &&
        all.every((found) => bytes === undefined || bytesOf(found) === bytes)
      );
    });
}

export function bytesOf({ capacity = '0' }: SeenCapacity): bigint {
  return parseQuantityBytes(capacity);
}

/** The scenario's only object. */
export function only(scene: Scene): SeenCapacity {
  const [first, second] = scene.capacities();
  if (first === undefined || second !== undefined)
    throw new Error(`${scene.capacities().length} capacities instead of 1`);
  return first;
}

/** Creates an object as a provisioner would have, for a class of the scenario. */
export async function makeCapacity(
  scene: Scene,
  segments: Segments,
  more: {
    readonly manager?: string | null;
    readonly name?: string;
    readonly capacity?: string;
  } = {},
): Promise<void> {
  const { manager = 'external-provisioner', name, capacity = '5Gi' } = more;
  await scene.create(pathOf(scene), {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'CSIStorageCapacity',
    metadata: {
      ...(name === undefined ? { generateName: 'csisc-' } : { name }),
      labels: {
        [DRIVER_LABEL]: scene.driver,
        ...(manager === null ? {} : { [MANAGER_LABEL]: manager }),
      },
    },
    storageClassName: scene.className,
    nodeTopology: { matchLabels: segmentsOf(scene, segments) },
    capacity,
  });
}

export async function removeCapacity(scene: Scene, { metadata }: SeenCapacity): Promise<void> {
  await scene.remove(`${pathOf(scene)}/${metadata.name}`);
}

export async function editCapacity(
  scene: Scene,
  { metadata }: SeenCapacity,
  change: Fields,
): Promise<void> {
  await scene.patch(`${pathOf(scene)}/${metadata.name}`, change);
}

/** Takes the labels of the provisioner from an object. */
export function stripCapacity(scene: Scene, found: SeenCapacity): Promise<void> {
  return editCapacity(scene, found, {
    metadata: { labels: { [DRIVER_LABEL]: null, [MANAGER_LABEL]: null } },
  });
}

/** Notes whether an object is the same as before. */
export function noteIdentity(scene: Scene, before: SeenCapacity): void {
  scene.notes['same object'] = scene
    .capacities()
    .some(({ metadata }) => metadata.uid === before.metadata.uid);
}

/** Waits for a poll. */
export async function oneInterval(scene: Scene): Promise<void> {
  await delay(POLL_MS + 1_000);
  await scene.marker();
}

const POLL_MS = 3_000;
export const POLLED = `--capacity-poll-interval=${POLL_MS}ms`;
export const CAPACITY_FLAGS = [
  '--enable-capacity',
  '--kube-api-capacity-qps=500',
  '--kube-api-capacity-burst=1000',
];
