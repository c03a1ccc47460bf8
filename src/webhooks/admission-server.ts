import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { networkOf } from '../runtime/network-of.ts';
import { RareWarnings } from '../runtime/rare-warnings.ts';
import { RequestMemory } from '../runtime/request-memory.ts';
import type { ChangeNotice } from './change-notice.ts';
import type { NoticeWriter } from './notice-writer.ts';
import type { WebhookMetrics } from './metrics.ts';
import { allowAdmission, readAdmissionReview } from './parse/admission-review.ts';
import { RequestProblem } from './problem.ts';
import { receiveBody } from './receive-body.ts';
import { sendProblem, sendText } from './send-answer.ts';
import { SenderRates } from './senders/sender-rates.ts';

/** A review may hold the object twice, each as large as the API server takes it. */
const MAX_BODY_BYTES = 8 * 1024 * 1024;
const MAX_MEMORY_BYTES = 32 * 1024 * 1024;
/** Reviews that are read in a second, so many bytes of a large one counting as one more. More than
 * an API server asks; others can't keep the process busy with them. */
const READ_PER_SECOND = 1_000;
const REVIEW_BYTES = 4 * 1024;
/** Hints of all callers without a certificate, together. Each is followed by three looks, and where
 * more came than can be read, by a list of everything. */
const UNKNOWN_PER_SECOND = 100;
/** So that claims that are created together all leave their hints. */
const UNKNOWN_BURST_SECONDS = 10;
/** So that some of the largest reviews, and then many small ones, are answered. */
const READ_BURST_SECONDS = 5;

export interface AdmissionServerOptions {
  readonly writer: NoticeWriter;
  readonly maxEventsPerSecond: number;
  readonly metrics: WebhookMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Answers POST /admission: allows each request, and leaves a hint after the answer. While there
 * are too many, hints are dropped and answers are not. It never answers 429 or 5xx, which the API
 * server would repeat while its user waits. */
export class AdmissionServer {
  readonly #options: AdmissionServerOptions;
  /** Of hints, by whether the caller has shown a certificate. */
  readonly #rates: Readonly<Record<'known' | 'unknown', SenderRates>>;
  readonly #reading: SenderRates;
  readonly #memory = new RequestMemory(MAX_MEMORY_BYTES);
  readonly #warnings: RareWarnings;

  constructor(options: AdmissionServerOptions) {
    const { clock, log, maxEventsPerSecond: perSecond } = options;
    this.#options = options;
    this.#warnings = new RareWarnings(log, clock);
    const nowMs = clock.nowMs();
    const unknownPerSecond = Math.min(UNKNOWN_PER_SECOND, perSecond);
    this.#rates = {
      known: new SenderRates({ perSecond, totalPerSecond: perSecond, nowMs }),
      unknown: new SenderRates({
        perSecond: unknownPerSecond,
        totalPerSecond: unknownPerSecond,
        burstSeconds: UNKNOWN_BURST_SECONDS,
        nowMs,
      }),
    };
    const readPerSecond = Math.max(READ_PER_SECOND, perSecond);
    this.#reading = new SenderRates({
      perSecond: readPerSecond,
      totalPerSecond: readPerSecond,
      burstSeconds: READ_BURST_SECONDS,
      nowMs,
    });
  }

  /** Answers a request, whatever is wrong with it. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await this.#allow(request, response);
    } catch (error) {
      this.#refuse(request, response, error);
    }
  }

  async #allow(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { name: owner } = callerOf(request.socket);
    const { clock } = this.#options;
    if (this.#reading.take(owner, clock.nowMs()) > 0) throw new Error('too many reviews');
    const limits = { maxBytes: MAX_BODY_BYTES, memory: this.#memory, owner };
    const body = await receiveBody(request, limits);
    this.#reading.charge(owner, Math.floor(body.length / REVIEW_BYTES), clock.nowMs());
    const { uid, verdict } = readAdmissionReview(body);
    const answer = { status: 200, type: 'application/json', text: allowAdmission(uid) };
    sendText(request, response, answer);
    const { reviews } = this.#options.metrics;
    if (verdict.kind === 'ignored') return reviews.inc({ result: `ignored-${verdict.reason}` });
    // After the answer has been written.
    setImmediate(() => void this.#leaveHint(verdict.hint, request));
  }

  async #leaveHint(hint: ChangeNotice, { socket }: IncomingMessage): Promise<void> {
    const { clock, metrics, writer } = this.#options;
    const { kind, name } = callerOf(socket);
    const waitMs = this.#rates[kind].take(name, clock.nowMs());
    let reason = TOO_MANY[kind];
    if (waitMs === 0)
      try {
        await writer.write([hint]);
        metrics.reviews.inc({ result: 'hint' });
        return metrics.hints.inc({ server: 'admission', result: 'stored' });
      } catch (error) {
        reason = String(error);
      }
    metrics.reviews.inc({ result: 'lost' });
    metrics.hints.inc({ server: 'admission', result: 'lost' });
    this.#warnings.warn({ reason }, 'a hint of an admission review was lost; the resync heals it');
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    this.#options.metrics.reviews.inc({ result: 'refused' });
    // What has no 4xx: others use the memory or the time up, or the client is gone. The API server
    // then goes on at once, as failurePolicy says.
    if (!(error instanceof RequestProblem) || error.problem.status >= 500)
      return void request.socket.destroy();
    const { status, detail, field } = error.problem;
    const from = request.socket.remoteAddress;
    this.#warnings.warn({ from, status, detail, field }, 'an admission review was refused');
    sendProblem(request, response, error.problem);
  }
}

const TOO_MANY = {
  known: 'too many reviews at once',
  unknown:
    'too many reviews at once of callers without a certificate; give --admission-tls-client-ca, ' +
    'or let the API server alone reach the address',
};

/** Who asks: the subject of a verified certificate, or the network. */
function callerOf(socket: Socket): { readonly kind: 'known' | 'unknown'; readonly name: string } {
  const isVerified = socket instanceof TLSSocket && socket.authorized;
  const subject = isVerified ? socket.getPeerX509Certificate()?.subject : undefined;
  return subject === undefined
    ? { kind: 'unknown', name: networkOf(socket.remoteAddress ?? '') }
    : { kind: 'known', name: subject };
}
