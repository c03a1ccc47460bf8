import { systemClock } from '#src/runtime/clock.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { claims, classes, volumes } from '#src/kube/resources.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Logger } from '#src/runtime/log.ts';
import type { SeenVolume, TrackedClaim } from './judge.ts';
import { type Random, seededRandom } from './random.ts';

const CLASS = 'sutler-chaos';
/** A claim that is deleted within this time is usually deleted during its creation. */
const CREATION_MS = 700;
/** More than the API server is ever frozen for, and the requests of that time need afterwards. */
const ANSWER_WITHIN_MS = 240_000;
const RETRY_MS = 500;
/** Longest lifetime of the other claims that are deleted. */
const MAX_LIFE_MS = 8_000;

export interface WorkloadOptions {
  readonly client: KubeClient;
  readonly driver: string;
  readonly namespace: string;
  readonly seed: number;
  readonly perSecond: number;
  readonly log: Logger;
}

/** Creates and deletes claims at random, and watches them. */
export interface Workload {
  /** Creates claims until the signal aborts, then waits for the deletions that were due by then. */
  run(signal: AbortSignal): Promise<void>;
  readonly claims: readonly TrackedClaim[];
  /** The last state of every PV that was seen, by name. */
  readonly volumes: ReadonlyMap<string, SeenVolume>;
  /** The times at which a PV appeared or disappeared, in Unix ms. */
  readonly progressMs: readonly number[];
  stop(): Promise<void>;
}

interface RawObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid: string;
    readonly resourceVersion: string;
  };
  readonly spec?: {
    readonly claimRef?: { readonly uid?: string };
    readonly csi?: { readonly volumeHandle?: string };
  };
  readonly status?: { readonly phase?: string };
}

/** Creates the class and starts the watches. */
export async function startWorkload(options: WorkloadOptions): Promise<Workload> {
  const { client, log, namespace } = options;
  const random = seededRandom(options.seed);
  const tracked = new Map<string, TrackedClaim>();
  const seen = new Map<string, SeenVolume>();
  const progressMs: number[] = [];
  await client.create(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: CLASS },
    provisioner: options.driver,
    reclaimPolicy: 'Delete',
    volumeBindingMode: 'Immediate',
  });
  const common = { client, log };
  const claimReflector = startReflector<ReturnType<typeof slice>>({
    ...common,
    resource: claims,
    namespace,
    transform: slice,
    onChange: ({ type, object }) => {
      const claim = tracked.get(object.metadata.uid);
      if (claim !== undefined && type !== 'deleted') claim.isBound = object.phase === 'Bound';
    },
  });
  const volumeReflector = startReflector<ReturnType<typeof slice>>({
    ...common,
    resource: volumes,
    transform: slice,
    onChange: ({ type, object }) => {
      if (type !== 'modified') progressMs.push(systemClock.nowMs());
      const { handle, claimUid, phase } = object;
      const wasReleased =
        (seen.get(object.metadata.name)?.wasReleased ?? false) || phase === 'Released';
      seen.set(object.metadata.name, {
        name: object.metadata.name,
        handle,
        claimUid,
        phase,
        wasReleased,
        isThere: type !== 'deleted',
      });
    },
  });
  await Promise.all([claimReflector.waitForSync(), volumeReflector.waitForSync()]);

  const live = async (name: string, life: Life, signal: AbortSignal): Promise<void> => {
    const { metadata } = await createClaim(client, namespace, name);
    const claim: TrackedClaim = { name, uid: metadata.uid, isBound: false };
    tracked.set(claim.uid, claim);
    // The watch may have shown the claim before the answer arrived.
    const known = claimReflector.get(`${namespace}/${name}`);
    if (known?.metadata.uid === claim.uid) claim.isBound = known.phase === 'Bound';
    if (life.forMs === undefined) return;
    await systemClock.sleep(life.forMs, signal);
    // At the end of the run, only claims with a short life are still deleted.
    if (signal.aborted && life.forMs > CREATION_MS) return;
    claim.deleteSentMs = systemClock.nowMs();
    await untilAnswered(() => client.delete(claims, { namespace, name }));
  };

  return {
    get claims() {
      return [...tracked.values()];
    },
    volumes: seen,
    progressMs,
    async run(signal) {
      const lives: Promise<void>[] = [];
      let failure: unknown;
      for (let n = 1; !signal.aborted; n += 1) {
        lives.push(
          live(`claim-${n}`, lifeOf(random), signal).catch(
            (error: unknown) => (failure ??= error),
          ) as Promise<void>,
        );
        await systemClock.sleep(random.between(0, 2_000 / options.perSecond), signal);
      }
      await Promise.all(lives);
      if (failure !== undefined) throw failure;
    },
    async stop() {
      await Promise.all([claimReflector.stop(), volumeReflector.stop()]);
    },
  };
}

async function createClaim(
  client: KubeClient,
  namespace: string,
  name: string,
): Promise<RawObject> {
  const body = {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name },
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: '1Mi' } },
      storageClassName: CLASS,
    },
  };
  return untilAnswered(async () => {
    try {
      return await client.create<RawObject>(claims, namespace, body);
    } catch (error) {
      if (!(error instanceof KubeError) || error.reason !== 'AlreadyExists') throw error;
      // An earlier request has created it without an answer.
      const claim = await client.get<RawObject>(claims, { namespace, name });
      if (claim === undefined) throw error;
      return claim;
    }
  });
}

/** Repeats a request that the API server, which a fault freezes, did not answer or could not
 * carry out. */
async function untilAnswered<T>(request: () => Promise<T>): Promise<T> {
  const untilMs = systemClock.nowMs() + ANSWER_WITHIN_MS;
  for (;;) {
    try {
      return await request();
    } catch (error) {
      const isUnanswered = error instanceof KubeError && (error.code === 0 || error.code >= 500);
      if (!isUnanswered || systemClock.nowMs() > untilMs) throw error;
      await systemClock.sleep(RETRY_MS);
    }
  }
}

interface Life {
  /** Undefined: the claim is not deleted. */
  readonly forMs: number | undefined;
}

/** Half of the claims are deleted during their creation, a quarter later, a quarter stays. */
function lifeOf(random: Random): Life {
  const lot = random.next();
  if (lot < 0.5) return { forMs: random.between(0, CREATION_MS) };
  return { forMs: lot < 0.75 ? random.between(CREATION_MS, MAX_LIFE_MS) : undefined };
}

function slice(raw: unknown) {
  const { metadata, spec, status } = raw as RawObject;
  const { name, namespace, uid, resourceVersion } = metadata;
  return {
    metadata: { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) },
    phase: status?.phase ?? '',
    claimUid: spec?.claimRef?.uid ?? '',
    handle: spec?.csi?.volumeHandle ?? '',
  };
}
