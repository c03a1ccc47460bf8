import express, { type Request, type RequestHandler } from 'express';
import type { Explanation } from '../explain/explain.ts';
import { keyId } from '../queue/contract.ts';
import { listDrivers, promoteUnlessRunning, useQueue } from '../queue/queues.ts';
import { redisDrain } from '../records/provisioning-pause.ts';
import type { BoardsOptions } from './boards.ts';
import { callerOf, guardActions } from './login.ts';
import {
  type Filter,
  filterPending,
  objectPage,
  PAGE_ROWS,
  pathOf,
  pendingPage,
} from './pending-page.ts';
import { PendingView, queueOf } from './pending-view.ts';
import { RequestRefused } from './refusals.ts';

const OBJECTS = ['/claims/:namespace/:name', '/volumes/:name'];

/** What an operator did to a job, by the query of the page that it leads to. */
const SAID = {
  promoted: 'It is tried now.',
  running: 'A worker is at it already: nothing was changed.',
  waiting: 'It has no delayed job: nothing was changed.',
} as const;

/** The pages about what is pending, and what operators do there. */
export class PendingRoutes {
  readonly router = express.Router();
  readonly #options: BoardsOptions;
  readonly #view: PendingView;

  constructor(options: BoardsOptions) {
    this.#options = options;
    this.#view = new PendingView(options);
    const { router } = this;
    const act = guardActions(options.log);
    router.get('/', this.#showAll);
    router.get(OBJECTS, this.#showOne);
    router.post(
      OBJECTS.map((path) => `${path}/run`),
      act,
      this.#tryNow,
    );
    router.post(['/drivers/:driver/drain', '/drivers/:driver/resume'], act, this.#changeDrain);
  }

  readonly #showAll: RequestHandler = async ({ query }, response) => {
    const filter = parseFilter(query);
    const overview = await this.#view.overview();
    const found = filterPending(overview[filter.show], filter);
    const number = Math.min(filter.page, Math.max(1, Math.ceil(found.length / PAGE_ROWS)));
    const rows = await this.#view.withJobs(
      found.slice((number - 1) * PAGE_ROWS, number * PAGE_ROWS),
    );
    const page = pendingPage({
      overview,
      filter: { ...filter, page: number },
      found: found.length,
      rows,
      redis: this.#options.link.address,
      mayAct: callerOf(response).mayAct,
    });
    response.send(page);
  };

  readonly #showOne: RequestHandler = async (request, response) => {
    const explanation = await this.#explain(request);
    const { said: done } = request.query;
    const [, said] = Object.entries(SAID).find(([name]) => name === done) ?? [];
    const nowMs = this.#options.clock.nowMs();
    response.send(objectPage(explanation, nowMs, callerOf(response).mayAct, said));
  };

  readonly #tryNow: RequestHandler = async (request, response) => {
    const explanation = await this.#explain(request);
    const { link, prefix } = this.#options;
    const said = await useQueue(link.redis, { prefix, queue: queueOf(explanation) }, (queue) =>
      promoteUnlessRunning(queue, keyId(explanation)),
    );
    response.redirect(303, `${pathOf(explanation)}?said=${said}`);
  };

  readonly #changeDrain: RequestHandler = async ({ params, path }, response) => {
    const { link, prefix, clock } = this.#options;
    const driver = String(params['driver']);
    if (!(await listDrivers(link.redis, prefix)).includes(driver))
      throw new RequestRefused(404, `there is no driver ${driver} here`);
    const drain = redisDrain(link.redis, prefix, driver);
    const by = `${callerOf(response).user} (dashboard)`;
    await (path.endsWith('/drain') ? drain.begin({ by, atMs: clock.nowMs() }) : drain.end());
    this.#view.forget();
    response.redirect(303, '/');
  };

  /** @throws RequestRefused for an object that is not pending */
  async #explain({ params }: Request): Promise<Explanation> {
    const { namespace, name } = params;
    const object = namespace === undefined ? String(name) : `${String(namespace)}/${String(name)}`;
    const explanation = await this.#view.explain(object);
    if (explanation !== undefined) return explanation;
    const detail = `${object} is not pending here: it is done, gone, or of another provisioner`;
    throw new RequestRefused(404, detail);
  }
}

const MAX_FILTER_LENGTH = 253;

/** @throws RequestRefused */
function parseFilter(query: Request['query']): Filter {
  const text = (name: string): string => {
    const value = query[name] ?? '';
    if (typeof value === 'string' && value.length <= MAX_FILTER_LENGTH) return value;
    const detail = `${name}: give it once, in ${MAX_FILTER_LENGTH} characters at most`;
    throw new RequestRefused(400, detail);
  };
  const show = text('show') || 'claims';
  const page = text('page') || '1';
  if (!/^[1-9]\d{0,6}$/.test(page)) throw new RequestRefused(400, 'page: give a number from 1 on');
  if (show !== 'claims' && show !== 'volumes')
    throw new RequestRefused(400, 'show: give claims or volumes');
  const names = { cause: text('cause'), class: text('class'), namespace: text('namespace') };
  return { show, ...names, page: Number(page) };
}
