import { performance } from 'node:perf_hooks';
import type { KubeClient } from '#src/kube/client.ts';
import { BETA_STORAGE_PROVISIONER, STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { claims, classes, namespaces, volumes } from '#src/kube/resources.ts';
import type { Logger } from '#src/runtime/log.ts';
import { sliceOfVolume } from './volume-slice.ts';

const NAME = 'sutler-bench';

export interface WaitingClaimsOptions {
  readonly client: KubeClient;
  readonly driver: string;
  /** Whether the claims carry from the start the annotation that Kubernetes' volume controller
   * gives them. */
  readonly isAnnotated: boolean;
  /** Requests under way at once. */
  readonly concurrency: number;
  readonly log: Logger;
}

/** Claims that are created whether or not a provisioner runs, and a watch of their PVs. */
export interface WaitingClaims {
  /** Creates claims.
   * @returns when the API server answered each, in ms of the monotonic clock */
  create(names: readonly string[]): Promise<readonly number[]>;
  /** When the watch showed the PV of each claim, in ms of the monotonic clock. */
  readonly provisionedMs: ReadonlyMap<string, number>;
  /** Resolves when the watch has shown this many PVs.
   * @throws Error if the signal aborts before that */
  waitForVolumes(count: number, signal: AbortSignal): Promise<void>;
  stop(): Promise<void>;
}

/** Creates a namespace and a class, and begins to watch PVs. */
export async function openWaitingClaims(options: WaitingClaimsOptions): Promise<WaitingClaims> {
  const { client, driver, log } = options;
  await client.create(namespaces, undefined, {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: NAME },
  });
  await client.create(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: NAME },
    provisioner: driver,
    reclaimPolicy: 'Delete',
    volumeBindingMode: 'Immediate',
  });
  const provisionedMs = new Map<string, number>();
  let onVolume = (): void => undefined;
  const reflector = startReflector({
    client,
    log,
    resource: volumes,
    transform: sliceOfVolume,
    onChange: ({ type, object }) => {
      if (type !== 'added') return;
      provisionedMs.set(object.claim, performance.now());
      onVolume();
    },
  });
  await reflector.waitForSync();
  return {
    provisionedMs,
    create: (names) => createClaims(options, names),
    waitForVolumes: (count, signal) =>
      new Promise((resolve, reject) => {
        onVolume = (): void => {
          if (provisionedMs.size >= count) resolve();
        };
        signal.addEventListener(
          'abort',
          () => reject(new Error(`${provisionedMs.size} of ${count} claims have a volume`)),
          { once: true },
        );
        onVolume();
      }),
    stop: () => reflector.stop(),
  };
}

async function createClaims(
  { client, driver, isAnnotated, concurrency }: WaitingClaimsOptions,
  names: readonly string[],
): Promise<readonly number[]> {
  const annotations = isAnnotated
    ? { annotations: { [STORAGE_PROVISIONER]: driver, [BETA_STORAGE_PROVISIONER]: driver } }
    : {};
  const answeredMs: number[] = [];
  let next = 0;
  const send = async (): Promise<void> => {
    for (let i = next++; i < names.length; i = next++) {
      await client.create(claims, NAME, {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: { name: names[i], ...annotations },
        spec: {
          accessModes: ['ReadWriteOnce'],
          resources: { requests: { storage: '1Gi' } },
          storageClassName: NAME,
        },
      });
      answeredMs[i] = performance.now();
    }
  };
  await Promise.all(Array.from({ length: concurrency }, send));
  return answeredMs;
}
