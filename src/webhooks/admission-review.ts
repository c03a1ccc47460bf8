import { isFields } from '../runtime/json.ts';
import { badField, catchProblem } from './problem.ts';
import { parseDocument } from './json-document.ts';
import { type Identity, ignore, judgeIdentity, type Verdict } from './object-identity.ts';

/** What the API server asks. */
export interface AdmissionQuestion {
  /** Id of this call, to be repeated in the answer. */
  readonly uid: string;
  /** What the request is about, as an event. Whatever is odd about it is ignored: the answer is
   * the same. */
  readonly verdict: Verdict;
}

const API_VERSION = 'admission.k8s.io/v1';
const OPERATIONS = new Set<unknown>(['CREATE', 'UPDATE', 'DELETE']);

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
