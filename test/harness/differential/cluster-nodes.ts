import assert from 'node:assert/strict';
import type { Fields } from '../../conformance/connection.ts';
import type { ClaimShape } from './scenario.ts';
import type { Scene } from './scene.ts';
import { CSI_NODES, NODES, SELECTED_NODE } from './stage-objects.ts';

/** Keys of topology with their values. In the cluster a key without a prefix has the scenario's. */
export type Segments = Readonly<Record<string, string>>;

/** A node of a scenario. */
export interface NodeShape {
  /** The labels of the Node; null: there is no Node. */
  readonly labels: Segments | null;
  /** The keys that the driver registered; undefined: those of the labels; null: the driver is not
   * registered; 'no CSINode': there is no CSINode. */
  readonly keys?: readonly string[] | null | 'no CSINode';
}

/** The name of one of the scenario's nodes in the cluster. */
function nodeName(scene: Scene, short: string): string {
  return `${short}-${scene.className}`;
}

/** One of the scenario's keys in the cluster. */
export function keyOf(scene: Scene, short: string): string {
  return short.includes('/') ? short : `${scene.className}/${short}`;
}

export function segmentsOf(scene: Scene, segments: Segments): Segments {
  return Object.fromEntries(
    Object.entries(segments).map(([key, value]) => [keyOf(scene, key), value]),
  );
}

/** Creates nodes, and waits until the provisioner has surely seen them. */
export function nodes(
  shapes: Readonly<Record<string, NodeShape>>,
): (scene: Scene) => Promise<void> {
  return async (scene) => {
    for (const [name, shape] of Object.entries(shapes)) await makeNode(scene, name, shape);
    await scene.marker();
  };
}

/** A node whose labels the driver registered. */
export function zone(name: string, rack?: string): NodeShape {
  return { labels: { zone: name, ...(rack === undefined ? {} : { rack }) } };
}

export async function makeNode(
  scene: Scene,
  short: string,
  { labels, keys = Object.keys(labels ?? {}) }: NodeShape,
): Promise<void> {
  const name = nodeName(scene, short);
  if (labels !== null) {
    await scene.create(NODES, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name, labels: segmentsOf(scene, labels) },
    });
    scene.others.add(`${NODES}/${name}`);
  }
  if (keys !== 'no CSINode') {
    await scene.create(CSI_NODES, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: { name },
      spec: { drivers: driversOf(scene, name, keys) },
    });
    scene.others.add(`${CSI_NODES}/${name}`);
  }
}

/** Registers the driver with other keys. */
export async function register(
  scene: Scene,
  short: string,
  keys: readonly string[] | null,
): Promise<void> {
  const name = nodeName(scene, short);
  await scene.patch(`${CSI_NODES}/${name}`, { spec: { drivers: [] } });
  await scene.patch(`${CSI_NODES}/${name}`, {
    spec: { drivers: driversOf(scene, name, keys) },
  });
}

export async function label(scene: Scene, short: string, labels: Fields): Promise<void> {
  await scene.patch(`${NODES}/${nodeName(scene, short)}`, {
    metadata: {
      labels: Object.fromEntries(
        Object.entries(labels).map(([key, value]) => [keyOf(scene, key), value]),
      ),
    },
  });
}

/** Removes a node with its CSINode. */
export async function removeNode(scene: Scene, short: string): Promise<void> {
  const name = nodeName(scene, short);
  await scene.remove(`${CSI_NODES}/${name}`);
  await scene.remove(`${NODES}/${name}`);
}

/** Removes all nodes of the scenario, for a scenario that no other may disturb. */
export async function removeNodes(scene: Scene): Promise<void> {
  for (const path of scene.others) await scene.remove(path);
}

/** A claim for which the scheduler chose this node. */
export function on(short: string, spec: Fields = {}): (scene: Scene) => ClaimShape {
  return (scene) => ({ annotations: { [SELECTED_NODE]: nodeName(scene, short) }, spec });
}

/** A node with a driver of its own; all scenarios share it. */
export function stageNode(scene: Scene, short: string): string {
  return `${short}-${scene.stage.token}`;
}

/** Chooses a node as the scheduler does. */
export async function choose(scene: Scene, short: string, claim = 'data'): Promise<void> {
  await scene.patch(`${scene.claims}/${claim}`, {
    metadata: { annotations: { [SELECTED_NODE]: nodeName(scene, short) } },
  });
}

/** The node that is chosen for a claim. */
export function chosen(scene: Scene, claim = 'data'): string | undefined {
  return scene.claim(claim)?.metadata.annotations?.[SELECTED_NODE];
}

/** One of the alternatives of allowedTopologies: values by key. */
export type AllowedTerm = Readonly<Record<string, readonly string[]>>;

/** allowedTopologies of a class. */
export function allowed(...terms: readonly AllowedTerm[]): (scene: Scene) => Fields {
  return (scene) => ({
    allowedTopologies: terms.map((term) => ({
      matchLabelExpressions: Object.entries(term).map(([key, values]) => ({
        key: keyOf(scene, key),
        values,
      })),
    })),
  });
}

function driversOf(scene: Scene, nodeID: string, keys: readonly string[] | null): Fields[] {
  const other = {
    name: 'other.csi.sutler.dev',
    nodeID,
    topologyKeys: ['other.csi.sutler.dev/zone'],
  };
  if (keys === null) return [other];
  assert.ok(scene.driver !== other.name);
  return [
    other,
    { name: scene.driver, nodeID, topologyKeys: keys.map((key) => keyOf(scene, key)) },
  ];
}
