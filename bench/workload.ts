import { performance } from 'node:perf_hooks';
import type { KubeClient } from '#src/kube/client.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { claims, classes, volumes } from '#src/kube/resources.ts';
import type { Logger } from '#src/runtime/log.ts';
import { sliceOfVolume, type VolumeSlice } from './volume-slice.ts';

/** When things happened to one claim, on the bench's monotonic clock, in ms. */
export interface Track {
  readonly name: string;
  /** The create, or the delete, was sent. */
  sentMs?: number;
  /** The API server answered it. */
  answeredMs?: number;
  /** A watch showed the PV, or its end. */
  volumeMs?: number;
  boundMs?: number;
}

export interface WorkloadOptions {
  readonly client: KubeClient;
  readonly driver: string;
  readonly namespace: string;
  readonly concurrency: number;
  readonly log: Logger;
}

/** Creates and deletes claims, and watches claims and PVs, as a user's program would. */
export interface Workload {
  /** Creates claims and resolves when all are Bound. */
  create(names: readonly string[], signal: AbortSignal): Promise<readonly Track[]>;
  /** Creates one claim without waiting until it is Bound. */
  createOnly(name: string): Promise<void>;
  /** Deletes claims and resolves when their volumes are gone. */
  remove(names: readonly string[], signal: AbortSignal): Promise<readonly Track[]>;
  removeClass(): Promise<void>;
  stop(): Promise<void>;
}

const CLASS = 'sutler-bench';

interface ClaimSlice {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
  };
  readonly phase: string | undefined;
}

/** Creates the class and starts the watches. */
export async function startWorkload(options: WorkloadOptions): Promise<Workload> {
  const { client, log, namespace } = options;
  await client.create(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: CLASS },
    provisioner: options.driver,
    reclaimPolicy: 'Delete',
    volumeBindingMode: 'Immediate',
  });
  const creating = new Map<string, Track>();
  const removing = new Map<string, Track>();
  let changed: (track: Track) => void = () => undefined;

  const claimReflector = startReflector<ClaimSlice>({
    client,
    log,
    resource: claims,
    namespace,
    transform: (raw) => sliceOfClaim(raw),
    onChange: ({ type, object }) => {
      const track = creating.get(object.metadata.name);
      if (
        type === 'deleted' ||
        object.phase !== 'Bound' ||
        track === undefined ||
        track.boundMs !== undefined
      )
        return;
      track.boundMs = performance.now();
      changed(track);
    },
  });
  const volumeReflector = startReflector<VolumeSlice>({
    client,
    log,
    resource: volumes,
    transform: (raw) => sliceOfVolume(raw),
    onChange: ({ type, object }) => {
      const track = (type === 'deleted' ? removing : creating).get(object.claim);
      if (track === undefined || track.volumeMs !== undefined) return;
      track.volumeMs = performance.now();
      changed(track);
    },
  });
  await Promise.all([claimReflector.waitForSync(), volumeReflector.waitForSync()]);

  const create = async (name: string): Promise<void> => {
    await client.create(claims, namespace, {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name },
      spec: {
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Gi' } },
        storageClassName: CLASS,
      },
    });
  };
  /** Sends one request per name and waits until each track is complete. */
  const run = async (o: {
    readonly names: readonly string[];
    readonly tracks: Map<string, Track>;
    readonly send: (name: string) => Promise<unknown>;
    readonly isDone: (track: Track) => boolean;
    readonly signal: AbortSignal;
  }): Promise<readonly Track[]> => {
    const tracks: Track[] = o.names.map((name) => ({ name }));
    for (const track of tracks) o.tracks.set(track.name, track);
    const done = new Set<Track>();
    let fail = (): void => undefined;
    const complete = new Promise<void>((resolve, reject) => {
      changed = (track) => {
        if (o.isDone(track)) done.add(track);
        if (done.size === tracks.length) resolve();
      };
      fail = () => {
        const missing = tracks.length - done.size;
        reject(new Error(`${missing} of ${tracks.length} claims were not finished in time`));
      };
      o.signal.addEventListener('abort', fail, { once: true });
    });
    const queue = [...tracks];
    const send = async (): Promise<void> => {
      for (
        let track = queue.shift();
        track !== undefined && !o.signal.aborted;
        track = queue.shift()
      ) {
        track.sentMs = performance.now();
        await o.send(track.name);
        track.answeredMs = performance.now();
        changed(track);
      }
    };
    try {
      await Promise.all([complete, ...Array.from({ length: options.concurrency }, send)]);
    } finally {
      changed = () => undefined;
      o.signal.removeEventListener('abort', fail);
      for (const { name } of tracks) o.tracks.delete(name);
    }
    return tracks;
  };

  return {
    createOnly: create,
    create: (names, signal) =>
      run({
        names,
        tracks: creating,
        send: create,
        isDone: ({ answeredMs, volumeMs, boundMs }) =>
          answeredMs !== undefined && volumeMs !== undefined && boundMs !== undefined,
        signal,
      }),
    remove: (names, signal) =>
      run({
        names,
        tracks: removing,
        send: (name) => client.delete(claims, { namespace, name }),
        isDone: ({ answeredMs, volumeMs }) => answeredMs !== undefined && volumeMs !== undefined,
        signal,
      }),
    async removeClass() {
      await client.delete(classes, { name: CLASS });
    },
    async stop() {
      await Promise.all([claimReflector.stop(), volumeReflector.stop()]);
    },
  };
}

/** A claim in the API's JSON. */
interface RawObject {
  readonly metadata: ClaimSlice['metadata'];
  readonly status?: { readonly phase?: string };
}

function sliceOfClaim(raw: unknown): ClaimSlice {
  const { metadata, status } = raw as RawObject;
  const { name, namespace, uid, resourceVersion } = metadata;
  return { metadata: { name, namespace, uid, resourceVersion }, phase: status?.phase };
}
