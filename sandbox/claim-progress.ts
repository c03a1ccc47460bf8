import { performance } from 'node:perf_hooks';
import { BETA_STORAGE_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { NODE_KEY } from './driver/pools.ts';

/** How far a claim has come. Times are in ms since it was created, as a watch showed them. */
export interface ClaimProgress {
  /** "namespace/name". */
  readonly claim: string;
  volume?: string;
  /** The volume controller has asked for a volume, by annotation. */
  requestedMs?: number;
  /** The PersistentVolume exists. */
  volumeMs?: number;
  boundMs?: number;
  /** The node that the volume can be used on, if it is only one. */
  node?: string;
  /** The nodes that the scheduler selected, in order. */
  readonly selectedNodes: string[];
}

/** The progress of claims. */
export class ClaimClocks {
  readonly #startedMs = new Map<string, number>();
  readonly #progress = new Map<string, ClaimProgress>();
  /** Each PersistentVolume, and when it was seen first. */
  readonly #volumes = new Map<string, { readonly seenMs: number; readonly volume: Volume }>();

  /** Starts a claim's clock, or has it started when the claim is first seen. */
  begin(claim: string, when: 'now' | 'when seen'): void {
    this.#progress.set(claim, { claim, selectedNodes: [] });
    if (when === 'now') this.#startedMs.set(claim, performance.now());
  }

  onClaim(claim: Claim): void {
    const key = `${claim.metadata.namespace}/${claim.metadata.name}`;
    const entry = this.#progress.get(key);
    if (entry === undefined) return;
    const elapsedMs = this.#elapsedMs(key);
    addSelectedNode(entry, claim.metadata.annotations?.[SELECTED_NODE]);
    if (isRequested(claim)) entry.requestedMs ??= elapsedMs;
    if (claim.status?.phase !== 'Bound') return;
    entry.boundMs ??= elapsedMs;
    entry.volume ??= claim.spec.volumeName ?? '';
    const found = this.#volumes.get(entry.volume);
    if (found !== undefined) addVolume(entry, found.volume, this.#elapsedMs(key, found.seenMs));
  }

  onVolume(volume: Volume): void {
    const { name } = volume.metadata;
    const seenMs = performance.now();
    this.#volumes.set(name, { seenMs, volume });
    // The watch of claims may be ahead of the one of volumes.
    const entry = this.all().find((each) => each.volume === name);
    if (entry !== undefined) addVolume(entry, volume, this.#elapsedMs(entry.claim, seenMs));
  }

  /** Starts the claim's clock unless it runs. What a watch showed before took no time. */
  #elapsedMs(key: string, atMs = performance.now()): number {
    const startedMs = this.#startedMs.get(key) ?? atMs;
    this.#startedMs.set(key, startedMs);
    return Math.max(0, atMs - startedMs);
  }

  all(): readonly ClaimProgress[] {
    return [...this.#progress.values()];
  }
}

function isRequested({ metadata }: Claim): boolean {
  const annotations = metadata.annotations ?? {};
  return STORAGE_PROVISIONER in annotations || BETA_STORAGE_PROVISIONER in annotations;
}

function addSelectedNode({ selectedNodes }: ClaimProgress, selected: string | undefined): void {
  if (selected !== undefined && selectedNodes.at(-1) !== selected) selectedNodes.push(selected);
}

function addVolume(entry: ClaimProgress, volume: Volume, elapsedMs: number): void {
  entry.volumeMs ??= elapsedMs;
  const node = nodeOf(volume);
  if (node !== undefined) entry.node = node;
}

/** The node that a volume's node affinity names. */
function nodeOf(volume: Volume): string | undefined {
  const terms = volume.spec.nodeAffinity?.required?.nodeSelectorTerms ?? [];
  const expressions = terms.length === 1 ? (terms[0]?.matchExpressions ?? []) : [];
  return expressions.find(({ key }) => key === NODE_KEY)?.values?.[0];
}
