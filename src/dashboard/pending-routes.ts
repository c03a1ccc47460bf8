import express, { type Request, type RequestHandler } from 'express';
import { retryNow } from '../queue/queues.ts';
import type { BoardsOptions } from './boards.ts';
import { callerOf } from './login.ts';
import { objectPage, pathOf } from './object-page.ts';
import { type Filter, filterPending, PAGE_ROWS, pendingPage } from './pending-page.ts';
import { PendingView } from './pending-view.ts';
import { RequestRefused } from './refusals.ts';
import { RENEWAL_PATH, RENEWAL_SCRIPT } from './renewal.ts';

const OBJECTS = ['/claims/:namespace/:name', '/volumes/:name'];

const MAY_NOT_ACT =
  'only the user of --dashboard-user may act here, and only with --dashboard-allow-actions';

/** What the operator's action did, by the query parameter of the next page. */
const SAID = {
  promoted: 'It is retried now.',
  running: 'A worker is already running it: nothing was changed.',
  waiting: 'It has no delayed job: nothing was changed.',
} as const;

/** Serves the pages about what is pending, and the operator's actions there. */
export function pendingRoutes(options: BoardsOptions): RequestHandler {
  const { link, prefix, log } = options;
  const view = new PendingView(options);
  const router = express.Router();

  router.get(RENEWAL_PATH, (_request, response) => {
    response.type('js').send(RENEWAL_SCRIPT);
  });

  router.get('/', async ({ query }, response) => {
    const filter = parseFilter(query);
    const overview = await view.overview();
    const { faults, found } = filterPending(overview[filter.show], filter);
    const page = Math.min(filter.page, Math.max(1, Math.ceil(found.length / PAGE_ROWS)));
    const rows = await view.withJobs(found.slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS));
    const listing = { overview, filter: { ...filter, page }, faults, found: found.length, rows };
    response.send(pendingPage({ ...listing, redis: link.address }));
  });

  router.get(OBJECTS, async (request, response) => {
    const object = objectOf(request);
    const explanation = await view.explain(object);
    if (explanation === undefined) throw unknown(object);
    const [, said] = Object.entries(SAID).find(([name]) => name === request.query['said']) ?? [];
    response.send(objectPage(explanation, Date.now(), callerOf(response).mayAct, said));
  });

  const retryPaths = OBJECTS.map((path) => `${path}/retry`);
  router.post(retryPaths, async (request, response) => {
    const { user, mayAct } = callerOf(response);
    if (!mayAct) throw new RequestRefused(403, MAY_NOT_ACT);
    log.info({ user, path: request.path, address: request.ip }, 'dashboard: the operator retries');
    const object = objectOf(request);
    const explanation = await view.explain(object);
    if (explanation === undefined) throw unknown(object);
    const { driver, uid } = explanation;
    const retried = await retryNow({ redis: link.redis, prefix, driver }, [explanation]);
    view.forget();
    response.redirect(303, `${pathOf(explanation)}?said=${retried.get(uid) ?? ''}`);
  });

  return router;
}

/** "namespace/claim", or the volume's name. */
function objectOf({ params }: Request): string {
  const { namespace, name } = params;
  return namespace === undefined ? String(name) : `${String(namespace)}/${String(name)}`;
}

function unknown(object: string): RequestRefused {
  const detail = `${object} is not pending here: it is done, deleted, or another provisioner's`;
  return new RequestRefused(404, detail);
}

const MAX_FILTER_LENGTH = 253;

/** @throws RequestRefused */
function parseFilter(query: Request['query']): Filter {
  const text = (name: string): string => {
    const value = query[name] ?? '';
    if (typeof value === 'string' && value.length <= MAX_FILTER_LENGTH) return value;
    const detail = `${name}: give it once, with at most ${MAX_FILTER_LENGTH} characters`;
    throw new RequestRefused(400, detail);
  };
  const show = text('show') || 'claims';
  const page = text('page') || '1';
  if (!/^[1-9]\d{0,6}$/.test(page)) throw new RequestRefused(400, 'page: give a number from 1 on');
  if (show !== 'claims' && show !== 'volumes')
    throw new RequestRefused(400, 'show: give claims or volumes');
  const names = { name: text('name'), class: text('class'), namespace: text('namespace') };
  return { show, fault: text('fault'), ...names, page: Number(page) };
}
