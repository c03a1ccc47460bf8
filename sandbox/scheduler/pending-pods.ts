/** What the scheduler knows about a pod without a node. */
export interface PendingPod {
  /** 'namespace/name'. */
  readonly key: string;
  readonly claimKeys: readonly string[];
  /** The chosen node, while the claims of the pod are being bound. */
  nodeName: string | undefined;
  /** What is to be done for each waiting claim on that node, by UID: its volume is created, or it
   * is bound to a free one. */
  plans: ReadonlyMap<string, 'create' | 'bind'>;
  /** Nodes where a volume could not be created. */
  readonly fullNodes: Set<string>;
  /** How often all nodes were full. */
  retries: number;
  isWaiting: boolean;
}

/** The pods without a node. */
export class PendingPods {
  readonly #byKey = new Map<string, PendingPod>();
  readonly #byClaim = new Map<string, Set<string>>();

  /** Adds a pod unless it is there already. */
  add(key: string, claimKeys: readonly string[]): void {
    if (this.#byKey.has(key)) return;
    this.#byKey.set(key, {
      key,
      claimKeys,
      nodeName: undefined,
      plans: new Map(),
      fullNodes: new Set(),
      retries: 0,
      isWaiting: false,
    });
    for (const claim of claimKeys)
      this.#byClaim.set(claim, (this.#byClaim.get(claim) ?? new Set()).add(key));
  }

  delete(key: string): void {
    const pending = this.#byKey.get(key);
    if (pending === undefined) return;
    this.#byKey.delete(key);
    for (const claim of pending.claimKeys) {
      const keys = this.#byClaim.get(claim);
      keys?.delete(key);
      if (keys?.size === 0) this.#byClaim.delete(claim);
    }
  }

  get(key: string): PendingPod | undefined {
    return this.#byKey.get(key);
  }

  keys(): readonly string[] {
    return [...this.#byKey.keys()];
  }

  /** Keys of the pods that use a claim. */
  usersOf(claimKey: string): readonly string[] {
    return [...(this.#byClaim.get(claimKey) ?? [])];
  }

  /** After the deletion of a volume, nodes that were full may have room. */
  forgetFullNodes(): void {
    for (const { fullNodes } of this.#byKey.values()) fullNodes.clear();
  }
}
