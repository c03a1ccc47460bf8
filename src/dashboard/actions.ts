import type { BoardHooks } from '@bull-board/api/typings/app';
import type { RequestHandler } from 'express';
import type { Logger } from '../runtime/log.ts';
import { isReading } from './login.ts';

/** Bull Board's routes that are safe on a live queue: a promoted job keeps its deduplication key.
 * Retry, clean, drain, obliterate and add do not (two runs of one key, or none, would follow), and
 * pausing is for the processes themselves. */
const PROMOTE_ROUTES: ReadonlySet<string> = new Set([
  '/api/queues/:queueName/promote',
  '/api/queues/:queueName/:jobId/promote',
]);

const READ_ONLY =
  'the dashboard is read-only; start it with --dashboard-allow-actions to let it promote delayed jobs';
const PROMOTE_ONLY =
  'the dashboard promotes delayed jobs and changes nothing else: other actions bypass what keeps a key from running twice';

/** Refuses every request that changes something, whatever the page shows, unless actions are
 * allowed and it is PUT …/promote. */
export function guardActions(o: {
  readonly allowActions: boolean;
  readonly log: Logger;
}): RequestHandler {
  return (request, response, next) => {
    if (isReading(request.method)) return next();
    const place = {
      method: request.method,
      path: request.originalUrl,
      address: request.socket.remoteAddress,
    };
    if (!o.allowActions) {
      o.log.warn(place, 'dashboard: refused an action');
      response.status(405).set('allow', 'GET, HEAD').json({ error: READ_ONLY });
    } else if (
      request.method === 'PUT' &&
      /^\/api\/queues\/[^/]+\/(?:[^/]+\/)?promote$/.test(request.path)
    ) {
      o.log.info(place, 'dashboard: action');
      next();
    } else {
      o.log.warn(place, 'dashboard: refused an action');
      response.status(403).json({ error: PROMOTE_ONLY });
    }
  };
}

/** The same rule once more where Bull Board knows which of its routes a path means. */
export function actionHooks(allowActions: boolean): BoardHooks {
  return {
    before: ({ method, route }) =>
      method === 'get' || (allowActions && method === 'put' && PROMOTE_ROUTES.has(route))
        ? undefined
        : { allow: false, status: 403, message: allowActions ? PROMOTE_ONLY : READ_ONLY },
  };
}
