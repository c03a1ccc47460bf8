import type { Request, Response } from 'express';
import { systemClock } from '../runtime/clock.ts';
import { isFields } from '../runtime/json.ts';
import { RareWarnings } from '../runtime/log.ts';
import { parseDocument } from './decode.ts';
import type { ChangeNotice } from './notices.ts';
import { type Identity, judgeIdentity, type Verdict } from './object-identity.ts';
import { badField, orProblem, RequestProblem, sendJson, sendProblem } from './problem.ts';
import { BodyReceiver } from './receive-body.ts';
import type { Endpoint, EndpointContext } from './webhook-server.ts';

const API_VERSION = 'admission.k8s.io/v1';
const OPERATIONS = new Set<unknown>(['CREATE', 'UPDATE', 'DELETE']);
/** A review may contain two copies of the object, each as large as the API server allows. */
const MAX_BODY_BYTES = 8 * 1024 * 1024;
const MAX_MEMORY_BYTES = 32 * 1024 * 1024;
/** The API server asks before it stores the object, so the endpoint sends the notice twice, after
 * these pauses: usually the object is stored after the first, after a slow admission the second. */
const PAUSES_MS = [100, 2_000];
/** Reviews whose notices may wait at once; notices of further reviews are dropped. */
const MAX_WAITING = 2_000;

/** Answers POST /admission: allows each request, and stores notices after the answer. Under too
 * much load it drops notices, but still answers. */
export class AdmissionEndpoint implements Endpoint {
  readonly #context: EndpointContext;
  readonly #warnings: RareWarnings;
  readonly #bodies = new BodyReceiver(MAX_MEMORY_BYTES);
  #waiting = 0;

  constructor(context: EndpointContext) {
    this.#context = context;
    this.#warnings = new RareWarnings(context.log);
  }

  /** @throws RequestProblem */
  async answer(request: Request, response: Response): Promise<void> {
    const body = await this.#bodies.receive(request, MAX_BODY_BYTES);
    const { uid, verdict } = readAdmissionReview(body);
    const allowed = { uid, allowed: true };
    sendJson(response, { apiVersion: API_VERSION, kind: 'AdmissionReview', response: allowed });
    if (typeof verdict === 'string')
      this.#context.metrics.reviews.inc({ result: `ignored-${verdict}` });
    else void this.#leaveNotices(verdict);
  }

  /** Ends the connection unless the error has a status 4xx: then the API server goes on at once, by
   * its failurePolicy. After 429 or 5xx it would repeat the request while its user waits. */
  refuse(error: unknown, request: Request, response: Response): void {
    this.#context.metrics.reviews.inc({ result: 'refused' });
    if (!(error instanceof RequestProblem) || error.status >= 500)
      return void request.socket.destroy();
    const { status, message: detail, field } = error;
    const from = request.socket.remoteAddress;
    this.#warnings.warn({ from, status, detail, field }, 'an admission review was refused');
    sendProblem(response, error);
  }

  async #leaveNotices(notice: ChangeNotice): Promise<void> {
    const { stream, stopping } = this.#context;
    const { reviews, notices } = this.#context.metrics;
    this.#waiting += 1;
    try {
      if (this.#waiting > MAX_WAITING) throw new Error('too many reviews at once');
      for (const pauseMs of PAUSES_MS) {
        await systemClock.sleep(pauseMs, stopping);
        await stream.append([notice]);
        notices.inc({ server: 'admission', result: 'stored' });
      }
      reviews.inc({ result: 'notice' });
    } catch (error) {
      reviews.inc({ result: 'lost' });
      notices.inc({ server: 'admission', result: 'lost' });
      this.#warnings.warn(
        { reason: String(error) },
        'lost a notice of an admission review; the next resync finds the change',
      );
    } finally {
      this.#waiting -= 1;
    }
  }
}

interface AdmissionQuestion {
  /** Id of this call, which the answer must repeat. */
  readonly uid: string;
  /** What the request is about, as an event. Errors in it are ignored: the answer is the same. */
  readonly verdict: Verdict;
}

/** Reads an AdmissionReview.
 * @throws RequestProblem unless it is an AdmissionReview v1 with a uid */
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
  if (request['dryRun'] === true) return { uid, verdict: 'dry-run' };
  if (!OPERATIONS.has(request['operation'])) return { uid, verdict: 'other-type' };
  const verdict = orProblem(() => judgeIdentity(identityOfRequest(request)));
  return { uid, verdict: verdict instanceof RequestProblem ? 'no-object' : verdict };
}

/** Finds the object of a request. A request about the status has the object's kind too. The name is
 * empty if the request deletes a collection. */
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
