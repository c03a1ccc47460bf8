import { STATUS_CODES } from 'node:http';
import type { Response } from 'express';
import { refusedPage } from './pages.ts';

/** Thrown by a handler for a request that it refuses.
 * @param detail  for people: what is wrong, and what to do */
export class RequestRefused extends Error {
  readonly status: number;
  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

/** Answers a browser that opens a page with HTML, and others with RFC 9457's JSON. */
export function refuse(response: Response, status: number, detail: string): void {
  const title = STATUS_CODES[status] ?? '';
  response.status(status);
  if (response.req.accepts(['json', 'html']) === 'html')
    return void response.send(refusedPage(title, detail));
  // Bull Board's page shows `error`.
  const problem = { title, status, detail, error: detail };
  response.type('application/problem+json').send(JSON.stringify(problem));
}

/** Answers that Redis can't be read. A browser reloads the page by itself. */
export function sendUnavailable(response: Response, trouble: string): void {
  response.set({ 'retry-after': '3', refresh: '3' });
  refuse(response, 503, trouble);
}
