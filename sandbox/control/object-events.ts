import { events } from '../api/kinds/events.ts';
import type { KubeObject } from '../api/kube-object.ts';
import type { Operations } from '../api/operations.ts';
import { timestamp } from '../api/time.ts';

/** Sends events of one controller, but only if the text differs from the object's last event. */
export class ObjectEvents {
  readonly #operations: Operations;
  readonly #component: string;
  readonly #nowMs: () => number;
  readonly #last = new Map<string, string>();
  #count = 0;

  /** @param component  the sender, as `kubectl describe` shows it */
  constructor(operations: Operations, component: string, nowMs: () => number) {
    this.#operations = operations;
    this.#component = component;
    this.#nowMs = nowMs;
  }

  record(object: KubeObject, type: 'Normal' | 'Warning', reason: string, message: string): void {
    const { name, namespace, uid, resourceVersion } = object.metadata;
    const said = `${reason}: ${message}`;
    if (this.#last.get(uid) === said || namespace === undefined) return;
    this.#last.set(uid, said);
    this.#count += 1;
    const at = timestamp(this.#nowMs());
    const suffix = (BigInt(this.#nowMs()) * 1_000_000n + BigInt(this.#count % 1_000_000)).toString(
      16,
    );
    const component = this.#component;
    this.#operations.create(events, namespace, {
      metadata: { name: `${name.slice(0, 236)}.${suffix}` },
      involvedObject: {
        kind: object.kind,
        apiVersion: object.apiVersion,
        namespace,
        name,
        uid,
        resourceVersion,
      },
      reason,
      message,
      source: { component },
      firstTimestamp: at,
      lastTimestamp: at,
      count: 1,
      type,
      reportingComponent: component,
    });
  }

  /** Forgets an object that was deleted. */
  forget(uid: string): void {
    this.#last.delete(uid);
  }
}
