import type { EventInput } from '../kube/event-correlation.ts';
import type { Consumer } from '../queue/consumer.ts';
import { systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';

/** How often an outage of the driver is looked for, and how often its event is renewed. */
const LOOK_EVERY_MS = 5_000;
const RENEW_AFTER_MS = 120_000;
/** Claims that are told at once: those that run next. */
const MOST_CLAIMS = 500;

/** While the driver can't be reached, a queue makes one trial run at a time, so most of its claims
 * have no run that could tell why they wait. This tells each of them. */
export function reportOutages(o: {
  readonly consumer: Pick<Consumer, 'driverTrouble' | 'waitingKeys'>;
  readonly events: { record(event: EventInput): void };
  readonly log: Logger;
}): PollLoop {
  const { consumer, events, log } = o;
  return new PollLoop({
    step: async () => {
      const reason = consumer.driverTrouble;
      if (reason === undefined) return undefined;
      for (const { namespace, name, uid } of await consumer.waitingKeys(MOST_CLAIMS)) {
        const regarding = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace, name, uid };
        events.record({
          regarding,
          type: 'Warning',
          reason: 'ProvisioningFailed',
          message: reason,
        });
      }
      return RENEW_AFTER_MS;
    },
    onError: (error) => log.debug({ err: error }, 'the claims that wait could not be listed'),
    periodMs: LOOK_EVERY_MS,
    isAligned: true,
    clock: systemClock,
  });
}
