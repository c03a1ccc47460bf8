import { createServer } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { makeCertificate } from '../../sandbox/api/http/certificate.ts';
import { at, textAt } from '../conformance/connection.ts';

/** One request for a review, as the webhook got it. */
export interface ReviewRequest {
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
  /** `request` of the AdmissionReview. */
  readonly request: unknown;
}

/** How the webhook answers: with this `response` (the uid is added unless it has one), this HTTP
 * status, or never. */
export type Answer =
  { readonly response: Readonly<Record<string, unknown>> } | { readonly status: number } | 'never';

/** A webhook on loopback that notes the reviews it is asked for. */
export interface WebhookServer {
  /** For `webhooks[].clientConfig`. */
  readonly clientConfig: { readonly url: string; readonly caBundle: string };
  readonly reviews: readonly ReviewRequest[];
  close(): Promise<void>;
}

/** @param answer  default: allow */
export async function startWebhookServer(
  answer: (review: ReviewRequest) => Answer | Promise<Answer> = () => ALLOWED,
): Promise<WebhookServer> {
  const certificate = makeCertificate(Date.now());
  const reviews: ReviewRequest[] = [];
  const server = createServer(certificate, (request, response) => {
    void (async () => {
      const review = await readReview(request);
      reviews.push(review);
      send(response, review, await answer(review));
    })();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    clientConfig: {
      url: `https://127.0.0.1:${port}/review`,
      caBundle: Buffer.from(certificate.cert).toString('base64'),
    },
    reviews,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

export const ALLOWED: Answer = { response: { allowed: true } };

async function readReview(request: IncomingMessage): Promise<ReviewRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const { url = '', headers } = request;
  return { url, headers, text, request: at(JSON.parse(text), 'request') };
}

function send(response: ServerResponse, review: ReviewRequest, answer: Answer): void {
  if (answer === 'never') return;
  if ('status' in answer) {
    response.writeHead(answer.status).end('no review');
    return;
  }
  const body = {
    apiVersion: 'admission.k8s.io/v1',
    kind: 'AdmissionReview',
    response: { uid: textAt(review.request, 'uid'), ...answer.response },
  };
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
