import type { Counter, Registry } from 'prom-client';
import type { KubeClient } from '../../kube/client.ts';
import { KubeError } from '../../kube/kube-error.ts';
import { claims, keyOf, volumes } from '../../kube/resources.ts';
import type { Clock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Logger } from '../../runtime/log.ts';
import { metricsIn } from '../../runtime/metrics.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';
import type { ObjectSource } from '../objects/object-source.ts';
import type { ChangeNotice, NoticePosition, NoticeStream } from '../../webhooks/notices.ts';

export interface NoticeReaderOptions {
  readonly stream: Pick<NoticeStream, 'markEnd' | 'read'>;
  readonly client: Pick<KubeClient, 'get'>;
  /** Gets the objects. While it leads no driver, the reader skips notices: a new leader lists
   * everything. */
  readonly source: Pick<ObjectSource, 'isLeading' | 'looked' | 'missed'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** How many notices, and then their objects, are read at once. */
const BATCH = 32;
/** How long one command waits for notices. */
const BLOCK_MS = 4_000;
const RETRY_MS = 1_000;
const LOOK_TIMEOUT_MS = 10_000;
/** Pause between two reports of missed changes. Each costs a list of everything. */
const MISSED_PAUSE_MS = 30_000;
/** How long /readyz shows the last refusal to read an object. */
const REFUSED_MS = 30_000;

/** Reads the notices of all senders in batches, and their objects from the API server. If the
 * stream loses notices before they are read, a resync follows. */
export class NoticeReader {
  readonly #options: NoticeReaderOptions;
  readonly #loop: PollLoop;
  readonly #looks: Counter<'found'>;
  readonly #dropped: Counter;
  /** The last notice that was read; undefined: it has not begun to read. */
  #position: NoticePosition | undefined;
  #isMissedPending = false;
  #nextMissedMs = 0;
  #refused = { message: '', atMs: -Infinity };

  constructor(options: NoticeReaderOptions) {
    const { clock, log, metrics } = options;
    this.#options = options;
    const { counter } = metricsIn(metrics);
    this.#looks = counter(
      'sutler_notice_looks_total',
      'Reads of objects that notices named, by whether the object existed.',
      ['found'],
    );
    this.#dropped = counter(
      'sutler_notices_dropped_total',
      'Notices whose object could not be read.',
      [],
    );
    this.#loop = new PollLoop({
      step: (signal) => this.#step(signal),
      onError: (error) => log.debug({ err: error }, 'could not read notices; trying again'),
      periodMs: RETRY_MS,
      clock,
    });
  }

  /** Why objects may not be read, for /readyz; undefined while they may. */
  get trouble(): string | undefined {
    const { message, atMs } = this.#refused;
    return this.#options.clock.nowMs() < atMs + REFUSED_MS ? message : undefined;
  }

  /** Resolves when the command under way has ended; close its connection first. */
  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** @returns the pause before the next step */
  async #step(signal: AbortSignal): Promise<number> {
    const { stream, source } = this.#options;
    if (this.#position === undefined) {
      this.#position = await stream.markEnd();
      // A leader's resync may have listed before the mark.
      this.#isMissedPending = source.isLeading;
    }
    const { notices, position, isGap } = await stream.read(this.#position, {
      most: BATCH,
      waitMs: BLOCK_MS,
    });
    this.#position = position;
    this.#isMissedPending ||= isGap;
    if (source.isLeading) {
      const targets = new Map(
        notices.map((notice) => [`${notice.resource} ${keyOf(notice)}`, notice]),
      );
      await Promise.all([...targets.values()].map((target) => this.#look(target, signal)));
    }
    this.#reportMissed();
    return 0;
  }

  async #look(target: ChangeNotice, signal: AbortSignal): Promise<void> {
    const { client, clock, log, source } = this.#options;
    const { resource: plural, namespace, name } = target;
    const [resource, ref] =
      plural === 'persistentvolumeclaims' ? [claims, { namespace, name }] : [volumes, { name }];
    try {
      const object = await client.get(resource, ref, { signal, timeoutMs: LOOK_TIMEOUT_MS });
      this.#looks.inc({ found: String(object !== undefined) });
      source.looked({ target, object });
    } catch (error) {
      this.#dropped.inc();
      log.debug({ ...target, err: error }, 'could not read an object that a notice named');
      const isRefused = error instanceof KubeError && [401, 403].includes(error.code);
      if (isRefused) this.#refused = { message: messageOf(error), atMs: clock.nowMs() };
      else this.#isMissedPending = true;
    }
  }

  #reportMissed(): void {
    const { clock, source, log } = this.#options;
    const nowMs = clock.nowMs();
    if (!this.#isMissedPending || nowMs < this.#nextMissedMs) return;
    this.#isMissedPending = false;
    if (!source.isLeading) return;
    this.#nextMissedMs = nowMs + MISSED_PAUSE_MS;
    log.warn('notices were lost or could not be read: listing all objects');
    source.missed.notify();
  }
}
