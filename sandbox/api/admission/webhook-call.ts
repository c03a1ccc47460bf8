import { Agent, request as httpsRequest } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { ApiError } from '../api-error.ts';
import { isObject, memberAt, objectAt, textAt, type Json, type JsonObject } from '../json-value.ts';
import { admissionReview, type Review } from './review.ts';

/** What a webhook said: undefined allows the write. */
export type Verdict = ApiError | undefined;

/** Asks one webhook, over a connection that is kept for the next call.
 * @throws Error where it can't be reached in time or its answer is no review of this request: the
 *   webhook's `failurePolicy` decides then */
export async function callWebhook(
  hook: JsonObject,
  review: Review,
  agent: Agent,
): Promise<Verdict> {
  const url = new URL(textAt(hook, 'clientConfig', 'url'));
  const seconds = Number(hook['timeoutSeconds']);
  url.searchParams.set('timeout', `${seconds}s`);
  const body = admissionReview(review);
  const answer = await post(url, `${JSON.stringify(body)}\n`, {
    agent,
    signal: AbortSignal.timeout(seconds * 1000),
  });
  return verdictOf(textAt(hook, 'name'), textAt(body.request, 'uid'), answer);
}

/** Connections to a webhook, whose certificate the configuration's authority must have signed. */
export function agentFor(hook: JsonObject): Agent {
  const ca = Buffer.from(textAt(hook, 'clientConfig', 'caBundle'), 'base64').toString();
  return new Agent({ keepAlive: true, ...(ca === '' ? {} : { ca }) });
}

const HEADERS = {
  accept: 'application/json, */*',
  'content-type': 'application/json',
  'user-agent': 'kube-apiserver-admission',
};

async function post(
  url: URL,
  body: string,
  how: { readonly agent: Agent; readonly signal: AbortSignal },
): Promise<Json> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = { ...HEADERS, 'content-length': Buffer.byteLength(body) };
    const request = httpsRequest(url, { method: 'POST', headers, ...how }, resolve);
    request.on('error', reject);
    request.end(body);
  });
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  const { statusCode = 0 } = response;
  if (statusCode < 200 || statusCode > 206)
    throw new Error(`the webhook answered with HTTP ${statusCode}`);
  return JSON.parse(Buffer.concat(chunks).toString()) as Json;
}

function verdictOf(hookName: string, uid: string, answer: Json): Verdict {
  const response = memberAt(answer, 'response');
  const kind = `${textAt(answer, 'apiVersion')} ${textAt(answer, 'kind')}`;
  if (kind !== 'admission.k8s.io/v1 AdmissionReview')
    throw new Error(
      `expected webhook response of admission.k8s.io/v1 AdmissionReview, got ${kind}`,
    );
  if (!isObject(response)) throw new Error('webhook response was absent');
  if (textAt(response, 'uid') !== uid) throw new Error(`expected response.uid=${uid}`);
  if (response['patch'] !== undefined || response['patchType'] !== undefined)
    throw new Error('a validating webhook may not set response.patch or response.patchType');
  return response['allowed'] === true ? undefined : refusal(hookName, objectAt(response, 'status'));
}

function refusal(hookName: string, status: JsonObject): ApiError {
  const why = textAt(status, 'message') || textAt(status, 'reason');
  const denied = `admission webhook ${JSON.stringify(hookName)} denied the request`;
  return new ApiError({
    code: Math.max(400, Number(status['code'] ?? 400)),
    reason: textAt(status, 'reason'),
    message: why === '' ? `${denied} without explanation` : `${denied}: ${why}`,
  });
}
