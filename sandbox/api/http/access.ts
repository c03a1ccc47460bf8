import { timingSafeEqual } from 'node:crypto';
import { ApiError } from '../api-error.ts';

/** The path of a request without the token, which is its first part. kubectl sends no credentials
 * without TLS, so the token is in the server's URL.
 * @throws ApiError 401 without the right token */
export function pathWithoutToken(path: string, token: string): string {
  const [given = '', ...rest] = path.slice(1).split('/');
  const [a, b] = [Buffer.from(given), Buffer.from(token)];
  if (a.length === b.length && timingSafeEqual(a, b)) return `/${rest.join('/')}`;
  throw new ApiError({ code: 401, reason: 'Unauthorized', message: 'Unauthorized' });
}
