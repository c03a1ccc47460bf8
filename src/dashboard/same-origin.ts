import type { IncomingMessage } from 'node:http';

/** Whether a page of the same origin sent a request, by the browser's headers; `unknown` without
 * them, as from curl. */
export function originOf(request: Pick<IncomingMessage, 'headers'>): 'same' | 'other' | 'unknown' {
  const { 'sec-fetch-site': site, origin, host } = request.headers;
  // Scripts can't set it, and it is right also behind a proxy that rewrites Host.
  if (typeof site === 'string') return site === 'same-origin' ? 'same' : 'other';
  if (origin === undefined) return 'unknown';
  return URL.canParse(origin) && new URL(origin).host === host ? 'same' : 'other';
}
