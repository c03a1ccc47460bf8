import { STATUS_CODES } from 'node:http';
import type { Request, Response } from 'express';
import { refusedPage, troublePage } from './pages.ts';

/** Thrown by a handler for a request that it refuses.
 * @param detail  for people: what is wrong, and what to do */
export class RequestRefused extends Error {
  readonly status: number;
  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

/** Answers with a page to a browser that opens one, otherwise as RFC 9457 says. */
export function refuse(request: Request, response: Response, status: number, detail: string): void {
  const title = STATUS_CODES[status] ?? '';
  response.status(status);
  if (request.accepts(['json', 'html']) === 'html')
    return void response.send(refusedPage(title, detail));
  // Bull Board's page shows `error`.
  const problem = { title, status, detail, error: detail };
  response.type('application/problem+json').send(JSON.stringify(problem));
}

/** Answers that Redis can't be read. */
export function sendUnavailable(request: Request, response: Response, trouble: string): void {
  response.status(503).set('retry-after', '3');
  if (request.originalUrl.startsWith('/queues/api/')) response.json({ error: trouble });
  else response.send(troublePage(trouble));
}
