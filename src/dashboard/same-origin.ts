import type { IncomingMessage } from 'node:http';

/** Whether a page of the dashboard or of another site sent a request, by the browser's headers;
 * `unknown` without them, as from curl. */
export function originOf(request: Pick<IncomingMessage, 'headers'>): 'same' | 'other' | 'unknown' {
  const { 'sec-fetch-site': site, origin, host } = request.headers;
  // A page's scripts can't set this header, and it is right also behind a proxy that rewrites Host.
  if (typeof site === 'string') return site === 'same-origin' ? 'same' : 'other';
  if (origin === undefined) return 'unknown';
  return URL.canParse(origin) && new URL(origin).host === host ? 'same' : 'other';
}
