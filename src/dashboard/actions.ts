import type { BoardHooks } from '@bull-board/api/typings/app';
import type { RequestHandler } from 'express';
import type { Logger } from '../runtime/log.ts';
import { isReading } from './login.ts';

/** The actions of Bull Board that are safe on a live queue: a promoted job keeps its deduplication
 * key. After retry, clean, drain, obliterate or add, a key could run twice at the same time or not
 * at all, and the workers pause queues themselves. */
const PROMOTE_ROUTES: ReadonlySet<string> = new Set([
  '/api/queues/:queueName/promote',
  '/api/queues/:queueName/:jobId/promote',
]);

const READ_ONLY =
  'the dashboard is read-only; ' +
  'start it with --dashboard-allow-actions to let it promote delayed jobs';
const PROMOTE_ONLY =
  'the dashboard promotes delayed jobs and changes nothing else: ' +
  'other actions bypass what keeps a key from running twice';

/** Refuses every request that changes something, whatever buttons the page shows. If actions are
 * allowed, PUT …/promote passes. */
export function guardActions(allowActions: boolean, log: Logger): RequestHandler {
  return (request, response, next) => {
    if (isReading(request.method)) return next();
    const fields = {
      method: request.method,
      path: request.originalUrl,
      address: request.socket.remoteAddress,
    };
    if (!allowActions) {
      log.warn(fields, 'dashboard: refused an action');
      response.status(405).set('allow', 'GET, HEAD').json({ error: READ_ONLY });
    } else if (
      request.method === 'PUT' &&
      /^\/api\/queues\/[^/]+\/(?:[^/]+\/)?promote$/.test(request.path)
    ) {
      log.info(fields, 'dashboard: promoting jobs');
      next();
    } else {
      log.warn(fields, 'dashboard: refused an action');
      response.status(403).json({ error: PROMOTE_ONLY });
    }
  };
}

/** The same rule for Bull Board's handlers, by the route that Bull Board matched. */
export function actionHooks(allowActions: boolean): BoardHooks {
  return {
    before: ({ method, route }) =>
      method === 'get' || (allowActions && method === 'put' && PROMOTE_ROUTES.has(route))
        ? undefined
        : { allow: false, status: 403, message: allowActions ? PROMOTE_ONLY : READ_ONLY },
  };
}
