import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Clock } from '../runtime/clock.ts';
import { peerCertificate } from '../runtime/certificate-names.ts';
import { isFields } from '../runtime/json.ts';
import { type Logger, RareWarnings } from '../runtime/log.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';
import { parseDocument } from './decode.ts';
import type { WebhookMetrics } from './metrics.ts';
import type { ChangeNotice, NoticeWriter } from './notices.ts';
import { type Identity, ignore, judgeIdentity, type Verdict } from './object-identity.ts';
import { badField, catchProblem, RequestProblem, sendJson, sendProblem } from './problem.ts';
import { BodyMemory, SenderRates } from './sender-limits.ts';

const API_VERSION = 'admission.k8s.io/v1';
const OPERATIONS = new Set<unknown>(['CREATE', 'UPDATE', 'DELETE']);
/** A review may hold the object twice, each as large as the API server takes it. */
const MAX_BODY_BYTES = 8 * 1024 * 1024;
const MAX_MEMORY_BYTES = 32 * 1024 * 1024;
/** Notices of all callers without a certificate, together. Each is followed by three looks, and
 * where more came than can be read, by a list of everything. */
const UNKNOWN_PER_SECOND = 100;
/** So that claims that are created together all leave their notices. */
const UNKNOWN_BURST_SECONDS = 10;

export interface AdmissionServerOptions {
  readonly writer: NoticeWriter;
  readonly maxEventsPerSecond: number;
  readonly metrics: WebhookMetrics;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Answers POST /admission: allows each request, and leaves a notice after the answer. While there
 * are too many, notices are dropped and answers are not. It never answers 429 or 5xx, which the API
 * server would repeat while its user waits. */
export class AdmissionServer {
  readonly #options: AdmissionServerOptions;
  /** Of notices, by the subject of the caller's certificate. */
  readonly #known: SenderRates;
  /** Of notices of all who have shown none. */
  readonly #unknown: TokenBucket;
  readonly #memory = new BodyMemory(MAX_MEMORY_BYTES);
  readonly #warnings: RareWarnings;

  constructor(options: AdmissionServerOptions) {
    const { clock, log, maxEventsPerSecond: perSecond } = options;
    this.#options = options;
    this.#warnings = new RareWarnings(log, clock);
    this.#known = new SenderRates({ burst: perSecond, perSecond });
    const unknownPerSecond = Math.min(UNKNOWN_PER_SECOND, perSecond);
    this.#unknown = new TokenBucket({
      burst: unknownPerSecond * UNKNOWN_BURST_SECONDS,
      perSecond: unknownPerSecond,
      nowMs: clock.nowMs(),
    });
  }

  /** Answers a request, whatever is wrong with it.
   * @param identify  called when the caller has shown a certificate */
  async answer(
    request: IncomingMessage,
    response: ServerResponse,
    identify: () => void,
  ): Promise<void> {
    const subject = subjectOf(request.socket);
    if (subject !== undefined) identify();
    try {
      await this.#allow(request, response, subject);
    } catch (error) {
      this.#refuse(request, response, error);
    }
  }

  async #allow(
    request: IncomingMessage,
    response: ServerResponse,
    subject: string | undefined,
  ): Promise<void> {
    const owner = subject ?? request.socket.remoteAddress ?? '';
    const body = await this.#memory.receive(request, { maxBytes: MAX_BODY_BYTES, owner });
    const { uid, verdict } = readAdmissionReview(body);
    sendJson(response, { status: 200, json: allowAdmission(uid) });
    const { reviews } = this.#options.metrics;
    if (verdict.kind === 'ignored') return reviews.inc({ result: `ignored-${verdict.reason}` });
    // After the answer has been written.
    setImmediate(() => void this.#leaveNotice(verdict.notice, subject));
  }

  async #leaveNotice(notice: ChangeNotice, subject: string | undefined): Promise<void> {
    const { clock, metrics, writer } = this.#options;
    const nowMs = clock.nowMs();
    const bucket = subject === undefined ? this.#unknown : this.#known.of(subject, nowMs);
    let reason = subject === undefined ? TOO_MANY_UNKNOWN : 'too many reviews at once';
    if (bucket.take(nowMs))
      try {
        await writer.write([notice]);
        metrics.reviews.inc({ result: 'notice' });
        return metrics.notices.inc({ server: 'admission', result: 'stored' });
      } catch (error) {
        reason = String(error);
      }
    metrics.reviews.inc({ result: 'lost' });
    metrics.notices.inc({ server: 'admission', result: 'lost' });
    this.#warnings.warn(
      { reason },
      'a notice of an admission review was lost; the resync heals it',
    );
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    this.#options.metrics.reviews.inc({ result: 'refused' });
    // What has no 4xx: others use the memory up, or the client is gone. The API server then goes on
    // at once, as failurePolicy says.
    if (!(error instanceof RequestProblem) || error.problem.status >= 500)
      return void request.socket.destroy();
    const { status, detail, field } = error.problem;
    const from = request.socket.remoteAddress;
    this.#warnings.warn({ from, status, detail, field }, 'an admission review was refused');
    sendProblem(request, response, error.problem);
  }
}

const TOO_MANY_UNKNOWN =
  'too many reviews at once of callers without a certificate; give --admission-tls-client-ca, ' +
  'or let the API server alone reach the address';

function subjectOf(socket: Socket): string | undefined {
  const isVerified = socket instanceof TLSSocket && socket.authorized;
  return isVerified ? peerCertificate(socket)?.subject : undefined;
}

interface AdmissionQuestion {
  /** Id of this call, to be repeated in the answer. */
  readonly uid: string;
  /** What the request is about, as an event. Whatever is odd about it is ignored: the answer is
   * the same. */
  readonly verdict: Verdict;
}

/** Reads an AdmissionReview.
 * @throws RequestProblem if it can't be answered: it is no AdmissionReview v1 with a uid */
export function readAdmissionReview(body: Buffer): AdmissionQuestion {
  const review = parseDocument(body, 'body');
  if (!isFields(review) || review['kind'] !== 'AdmissionReview')
    throw badField('kind', 'it must be AdmissionReview');
  if (review['apiVersion'] !== API_VERSION)
    throw badField('apiVersion', `it must be ${API_VERSION}: list v1 in admissionReviewVersions`);
  const { request } = review;
  if (!isFields(request)) throw badField('request', 'it must be a JSON object');
  const { uid } = request;
  if (typeof uid !== 'string' || uid === '') throw badField('request.uid', 'it is missing');
  if (request['dryRun'] === true) return { uid, verdict: ignore('dry-run') };
  if (!OPERATIONS.has(request['operation'])) return { uid, verdict: ignore('other-type') };
  const read = catchProblem(() => judgeIdentity(identityOfRequest(request), true));
  return { uid, verdict: 'value' in read ? read.value : ignore('no-object') };
}

/** The answer that allows the request. */
export function allowAdmission(uid: string): object {
  return { apiVersion: API_VERSION, kind: 'AdmissionReview', response: { uid, allowed: true } };
}

/** The kind is that of the object also where the request is about its status. The name is empty
 * where the request deletes a collection. */
function identityOfRequest(request: Readonly<Record<string, unknown>>): Identity {
  const { kind: type, namespace, name, operation } = request;
  const { group, version, kind } = isFields(type) ? type : {};
  const object = operation === 'DELETE' ? request['oldObject'] : request['object'];
  if (!isFields(object)) throw badField('object', 'it must be a JSON object');
  const { metadata } = object;
  const inObject = isFields(metadata) ? metadata : {};
  return {
    apiVersion: group === '' ? version : `${String(group)}/${String(version)}`,
    kind,
    namespace: hasText(namespace) ? namespace : inObject['namespace'],
    name: hasText(name) ? name : inObject['name'],
    fieldOf: (part) => part,
  };
}

function hasText(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}
