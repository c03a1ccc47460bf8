import type { KubeClient } from '#src/kube/client.ts';
import { SELECTED_NODE } from '#src/kube/keys.ts';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { type Reflector, startReflector } from '#src/kube/reflector.ts';
import { claims, volumes, type Resource } from '#src/kube/resources.ts';
import type { Logger } from '#src/runtime/log.ts';
import { NODE_KEY } from './driver/pools.ts';
import type { Example } from './examples.ts';
import { describeNode } from './nodes.ts';
import { pods } from './resources.ts';

interface Pod extends KubeObject {
  readonly spec: {
    readonly nodeName?: string;
    readonly volumes?: readonly {
      readonly persistentVolumeClaim?: { readonly claimName: string };
    }[];
  };
  readonly status?: { readonly phase?: string };
}

/** Follows the claims and pods of the examples through the API server, as a user would. */
export class Progress {
  readonly #print: (line: string) => void;
  /** The examples that are not ready yet, and when they were created. */
  readonly #waiting = new Map<Example, number>();
  /** The nodes that the scheduler selected for a claim, in order. */
  readonly #selected = new Map<string, Set<string>>();
  readonly #checks = new Set<() => void>();
  readonly #claims: Reflector<Claim>;
  readonly #volumes: Reflector<Volume>;
  readonly #pods: Reflector<Pod>;

  /** @param o.print  gets a line for each claim that is Bound, and each pod that is Running */
  constructor(o: {
    readonly client: KubeClient;
    readonly log: Logger;
    readonly print: (line: string) => void;
  }) {
    this.#print = o.print;
    const watch = <T extends KubeObject>(resource: Resource, onObject?: (object: T) => void) =>
      startReflector<T>({
        ...o,
        resource,
        transform: (raw) => raw as T,
        onChange: ({ object }) => {
          onObject?.(object);
          for (const check of this.#checks) check();
        },
      });
    this.#claims = watch<Claim>(claims, ({ metadata }) => {
      const node = metadata.annotations?.[SELECTED_NODE];
      const key = `${metadata.namespace}/${metadata.name}`;
      if (node !== undefined)
        this.#selected.set(key, (this.#selected.get(key) ?? new Set()).add(node));
    });
    this.#volumes = watch<Volume>(volumes);
    this.#pods = watch<Pod>(pods);
    this.#checks.add(() => this.#printReady());
  }

  /** Follows an example; call it just before the example is created. */
  begin(example: Example): void {
    if (example.resource === claims || example.resource === pods)
      this.#waiting.set(example, performance.now());
  }

  /** Resolves when all claims are Bound and all pods Running, or at the signal.
   * @returns the claims and pods that are not */
  async waitUntilReady(signal: AbortSignal): Promise<readonly string[]> {
    await this.#until(() => this.#waiting.size === 0, signal);
    return [...this.#waiting.keys()].map((example) =>
      example.resource === claims
        ? `claim ${keyOf(example)}, which is not Bound`
        : `pod ${keyOf(example)}, which is not Running`,
    );
  }

  /** Resolves when no PersistentVolume is left, or at the signal.
   * @returns the names of the volumes that are left */
  async waitUntilNoVolumes(signal: AbortSignal): Promise<readonly string[]> {
    await this.#volumes.waitForSync(signal).catch(() => undefined);
    await this.#until(() => this.#volumes.size === 0, signal);
    return [...this.#volumes.list()].map(({ metadata }) => metadata.name);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#claims.stop(), this.#volumes.stop(), this.#pods.stop()]);
  }

  #printReady(): void {
    for (const [example, startedMs] of this.#waiting) {
      const afterMs = Math.round(performance.now() - startedMs);
      const line =
        example.resource === claims
          ? this.#lineOfClaim(keyOf(example), afterMs)
          : this.#lineOfPod(keyOf(example), afterMs);
      if (line === undefined) continue;
      this.#waiting.delete(example);
      this.#print(`  ${example.resource.kind === 'Pod' ? 'pod  ' : 'claim'} ${line}`);
    }
  }

  #lineOfClaim(key: string, afterMs: number): string | undefined {
    const claim = this.#claims.get(key);
    // The watch of claims may be ahead of the watch of volumes.
    const volume = this.#volumes.get(claim?.spec.volumeName ?? '');
    if (claim?.status?.phase !== 'Bound' || volume === undefined) return undefined;
    const node = nodeOf(volume);
    const place = node === undefined ? '' : ` on ${describeNode(node)}`;
    return `${key.padEnd(18)} Bound after ${afterMs} ms${place}`;
  }

  /** Names the pod's node, and the nodes that the scheduler tried before. */
  #lineOfPod(key: string, afterMs: number): string | undefined {
    const pod = this.#pods.get(key);
    const node = pod?.spec.nodeName;
    if (node === undefined || pod?.status?.phase !== 'Running') return undefined;
    const tried = (pod.spec.volumes ?? []).flatMap(({ persistentVolumeClaim: claim }) => [
      ...(this.#selected.get(`${pod.metadata.namespace}/${claim?.claimName}`) ?? []),
    ]);
    const full = tried.filter((each) => each !== node).map(describeNode);
    const others = full.length === 0 ? '' : `; no room on ${full.join(', ')}`;
    return `${key.padEnd(18)} Running after ${afterMs} ms on ${describeNode(node)}${others}`;
  }

  #until(isDone: () => boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!signal.aborted && !isDone()) return;
        this.#checks.delete(check);
        resolve();
      };
      this.#checks.add(check);
      signal.addEventListener('abort', check, { once: true });
      check();
    });
  }
}

function keyOf({ namespace = '', name }: Example): string {
  return `${namespace}/${name}`;
}

/** The node that a volume's node affinity names. */
function nodeOf(volume: Volume): string | undefined {
  const terms = volume.spec.nodeAffinity?.required?.nodeSelectorTerms ?? [];
  const expressions = terms.length === 1 ? (terms[0]?.matchExpressions ?? []) : [];
  return expressions.find(({ key }) => key === NODE_KEY)?.values?.[0];
}
