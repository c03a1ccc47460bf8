import type { RequestHandler } from 'express';
import type { Logger } from '../runtime/log.ts';
import { isReading } from './login.ts';
import { addressOf } from './request-checks.ts';

const READ_ONLY =
  'the dashboard is read-only; start it with --dashboard-allow-actions to promote delayed jobs';
const PROMOTE_ONLY =
  'the dashboard can only promote delayed jobs: ' +
  'other actions bypass what keeps a key from running twice';

/** The actions that are safe on a live queue: a promoted job keeps its deduplication key. After
 * retry, clean, drain, obliterate or add, a key could run twice at the same time or not at all. */
const PROMOTE_PATH = /^\/api\/queues\/[^/]+\/(?:[^/]+\/)?promote$/;

/** Refuses every request that changes something. If actions are allowed, PUT …/promote passes. */
export function guardActions(allowActions: boolean, log: Logger): RequestHandler {
  return (request, response, next) => {
    const { method, path, originalUrl } = request;
    if (isReading(method)) return next();
    const fields = { method, path: originalUrl, address: addressOf(request) };
    if (allowActions && method === 'PUT' && PROMOTE_PATH.test(path)) {
      log.info(fields, 'dashboard: promoting jobs');
      return next();
    }
    log.warn(fields, 'dashboard: refused an action');
    if (allowActions) response.status(403).json({ error: PROMOTE_ONLY });
    else response.status(405).set('allow', 'GET, HEAD').json({ error: READ_ONLY });
  };
}
