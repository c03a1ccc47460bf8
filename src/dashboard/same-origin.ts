import type { IncomingMessage } from 'node:http';

/** Where a request comes from as the browser tells it; `unknown` when it does not tell, as with
 * curl. */
export function originOf(request: Pick<IncomingMessage, 'headers'>): 'same' | 'other' | 'unknown' {
  const { 'sec-fetch-site': site, origin, host } = request.headers;
  // Set by the browser alone, and still true behind a proxy that rewrites Host.
  if (typeof site === 'string') return site === 'same-origin' ? 'same' : 'other';
  if (origin === undefined) return 'unknown';
  return URL.canParse(origin) && new URL(origin).host === host ? 'same' : 'other';
}
