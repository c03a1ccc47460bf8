import { events } from '../api/kinds/events.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { timestamp } from '../api/time.ts';

const COMPONENT = 'persistentvolume-controller';

/** Events of the binder: one whenever the reason for a claim changes, not one for each sync. */
export class ClaimEvents {
  readonly #operations: Operations;
  readonly #nowMs: () => number;
  readonly #lastReason = new Map<string, string>();
  #count = 0;

  constructor(operations: Operations, nowMs: () => number) {
    this.#operations = operations;
    this.#nowMs = nowMs;
  }

  record(claim: KubeObject, type: 'Normal' | 'Warning', reason: string, message: string): void {
    const { name, namespace, uid, resourceVersion } = claim.metadata;
    if (this.#lastReason.get(uid) === reason || namespace === undefined) return;
    this.#lastReason.set(uid, reason);
    this.#count += 1;
    const at = timestamp(this.#nowMs());
    const suffix = (BigInt(this.#nowMs()) * 1_000_000n + BigInt(this.#count % 1_000_000)).toString(
      16,
    );
    this.#operations.create(events, namespace, {
      metadata: { name: `${name.slice(0, 236)}.${suffix}` },
      involvedObject: {
        kind: claim.kind,
        apiVersion: claim.apiVersion,
        namespace,
        name,
        uid,
        resourceVersion,
      },
      reason,
      message,
      source: { component: COMPONENT },
      firstTimestamp: at,
      lastTimestamp: at,
      count: 1,
      type,
      reportingComponent: COMPONENT,
    });
  }

  /** Forgets a claim that was deleted. */
  forget(uid: string): void {
    this.#lastReason.delete(uid);
  }
}
