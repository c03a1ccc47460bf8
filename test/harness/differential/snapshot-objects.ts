import assert from 'node:assert/strict';
import type { Connection, Fields } from '../../conformance/connection.ts';
import type { Seen } from './observer.ts';

const API_VERSION = 'snapshot.storage.k8s.io/v1';
const SNAPSHOTS = `/apis/${API_VERSION}`;

/** Where snapshots are: a scene, or a namespace. */
export interface SnapshotPlace {
  readonly namespace: string;
  readonly driver: string;
  /** Part of the names of what is not in a namespace. */
  readonly className: string;
  create(path: string, object: Fields): Promise<Seen>;
  setStatus(path: string, status: Fields): Promise<void>;
}

/** A namespace with snapshots of a driver. */
export function snapshotPlace(api: Connection, namespace: string, driver: string): SnapshotPlace {
  return {
    namespace,
    driver,
    className: namespace,
    create: async (path, object) => (await api.create(path, object)) as Seen,
    async setStatus(path, status) {
      const reply = await api.patch('merge', `${path}/status`, { status });
      assert.equal(reply.status, 200, reply.text);
    },
  };
}

/** Changes to the parts of a plain snapshot; null removes the part. */
export interface SnapshotChanges {
  readonly namespace?: string;
  readonly metadata?: Fields;
  readonly status?: Fields | null;
  readonly content?: Fields | null;
  readonly contentMetadata?: Fields;
  readonly contentStatus?: Fields | null;
}

/** Creates a snapshot as the snapshot controller would, with changes to each part; null removes the
 * part. */
export async function makeSnapshot(
  scene: SnapshotPlace,
  name: string,
  changes: SnapshotChanges = {},
): Promise<Seen> {
  const namespace = changes.namespace ?? scene.namespace;
  const boundVolumeSnapshotContentName = contentNameOf(scene, name);
  const made = await scene.create(`${SNAPSHOTS}/namespaces/${namespace}/volumesnapshots`, {
    apiVersion: API_VERSION,
    kind: 'VolumeSnapshot',
    metadata: { name, ...changes.metadata },
    spec: { source: { volumeSnapshotContentName: boundVolumeSnapshotContentName } },
  });
  if (changes.status !== null) {
    const status = {
      boundVolumeSnapshotContentName,
      readyToUse: true,
      restoreSize: '1Gi',
      ...changes.status,
    };
    await scene.setStatus(snapshotPath(scene, name, namespace), status);
  }
  if (changes.content !== null) await makeContent(scene, made, changes);
  return made;
}

/** The content to which a snapshot is bound. */
export async function makeContent(
  scene: SnapshotPlace,
  { metadata: { name, namespace, uid } }: Seen,
  changes: SnapshotChanges = {},
): Promise<void> {
  const snapshotHandle = `snap-${scene.className}`;
  await scene.create(`${SNAPSHOTS}/volumesnapshotcontents`, {
    apiVersion: API_VERSION,
    kind: 'VolumeSnapshotContent',
    metadata: { name: contentNameOf(scene, name), ...changes.contentMetadata },
    spec: {
      deletionPolicy: 'Retain',
      driver: scene.driver,
      source: { snapshotHandle },
      volumeSnapshotRef: { apiVersion: API_VERSION, kind: 'VolumeSnapshot', name, namespace, uid },
      ...changes.content,
    },
  });
  if (changes.contentStatus === null) return;
  const status = {
    snapshotHandle,
    readyToUse: true,
    restoreSize: 1024 ** 3,
    ...changes.contentStatus,
  };
  await scene.setStatus(contentPath(scene, name), status);
}

/** Path of a snapshot, by default in the scenario's own namespace. */
export function snapshotPath(
  scene: SnapshotPlace,
  name: string,
  namespace = scene.namespace,
): string {
  return `${SNAPSHOTS}/namespaces/${namespace}/volumesnapshots/${name}`;
}

/** Path of the content of a snapshot. */
export function contentPath(scene: SnapshotPlace, name: string): string {
  return `${SNAPSHOTS}/volumesnapshotcontents/${contentNameOf(scene, name)}`;
}

function contentNameOf(scene: SnapshotPlace, name: string): string {
  return `content-${name}-${scene.className}`;
}
