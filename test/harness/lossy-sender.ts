import type { ChangeNotice } from '#src/webhooks/notices.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { type Reflector, startReflector, type Transformed } from '#src/kube/reflector.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { seeded } from './seeded.ts';

/** What a sender does with events: shares of all, from 0 to 1. */
export interface Faults {
  readonly lost: number;
  readonly doubled: number;
  /** Sent up to 300 ms later, and so after others. */
  readonly late: number;
}

export interface LossySender {
  /** Events that were lost. */
  readonly lost: number;
  readonly sent: number;
  stop(): Promise<void>;
}

/** Watches claims and volumes and sends a notice for each event, but for those that it loses. */
export function startLossySender(o: {
  readonly client: KubeClient;
  readonly send: (notices: readonly ChangeNotice[]) => Promise<void>;
  readonly faults: Faults;
  readonly seed: number;
}): LossySender {
  const random = seeded(o.seed);
  const timers = new Set<NodeJS.Timeout>();
  let [lost, sent] = [0, 0];
  const send = (notice: ChangeNotice, delayMs: number): void => {
    const timer = setTimeout(() => {
      timers.delete(timer);
      sent += 1;
      void o.send([notice]).catch(() => undefined);
    }, delayMs);
    timers.add(timer);
  };
  const onObject = (resource: ChangeNotice['resource'], { metadata }: Transformed): void => {
    const { namespace = '', name } = metadata;
    const notice = { resource, namespace, name };
    if (random() < o.faults.lost) {
      lost += 1;
      return;
    }
    send(notice, random() < o.faults.late ? random() * 300 : 0);
    if (random() < o.faults.doubled) send(notice, random() * 300);
  };
  const reflectors: readonly Reflector<Transformed>[] = [claims, volumes].map((resource) =>
    startReflector<Transformed>({
      client: o.client,
      resource,
      transform: (raw) => ({ metadata: (raw as KubeObject).metadata }),
      onChange: ({ object }) => onObject(resource.plural as ChangeNotice['resource'], object),
      log: silentLog,
    }),
  );
  return {
    get lost() {
      return lost;
    },
    get sent() {
      return sent;
    },
    async stop() {
      for (const timer of timers) clearTimeout(timer);
      await Promise.all(reflectors.map((reflector) => reflector.stop()));
    },
  };
}
