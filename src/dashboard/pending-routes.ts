import express, { type Request, type RequestHandler, type Response } from 'express';
import type { Explanation } from '../explain/explain.ts';
import { listDrivers, promoteUnlessRunning, useQueue } from '../queue/queues.ts';
import { redisDrain } from '../records/provisioning-pause.ts';
import { describeRedisError } from '../redis/error-text.ts';
import { type BoardsOptions, guardActions } from './boards.ts';
import { callerOf } from './login.ts';
import {
  type Filter,
  filterPending,
  objectPage,
  PAGE_ROWS,
  pathOf,
  pendingPage,
  urlOf,
} from './pending-page.ts';
import { keyIdOf, PendingView, queueOf } from './pending-view.ts';
import { refuse, RequestRefused, sendUnavailable } from './refusals.ts';

type Options = Omit<BoardsOptions, 'mountPath'>;
/** A page, or the path of the one that the browser opens next. */
type Answer = { readonly page: string } | { readonly next: string };
type Handler = (request: Request, response: Response) => Promise<Answer>;

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
  readonly #options: Options;
  readonly #view: PendingView;

  constructor(options: Options) {
    this.#options = options;
    this.#view = new PendingView(options);
    const { router } = this;
    const act = guardActions(options, false);
    router.get('/', this.#answer(this.#showAll));
    router.get(OBJECTS, this.#answer(this.#showOne));
    router.post('/run', act, this.#answer(this.#tryAll));
    router.post(
      OBJECTS.map((path) => `${path}/run`),
      act,
      this.#answer(this.#tryNow),
    );
    router.post(
      ['/drivers/:driver/drain', '/drivers/:driver/resume'],
      act,
      this.#answer(this.#changeDrain),
    );
  }

  #answer(handle: Handler): RequestHandler {
    return async (request, response) => {
      const { link, log } = this.#options;
      try {
        if (link.trouble !== undefined) return sendUnavailable(response, link.trouble);
        const answer = await handle(request, response);
        // Otherwise the time limit has answered.
        if (response.headersSent) return;
        if ('page' in answer) response.send(answer.page);
        else response.redirect(303, answer.next);
      } catch (error) {
        if (response.headersSent) return;
        if (error instanceof RequestRefused) return refuse(response, error.status, error.message);
        log.warn({ err: error, path: request.path }, 'dashboard: could not read what is pending');
        const trouble = link.trouble ?? describeRedisError(link.address, error);
        sendUnavailable(response, trouble);
      }
    };
  }

  readonly #showAll: Handler = async ({ query }, response) => {
    const filter = parseFilter(query);
    const overview = await this.#view.overview();
    const found = filterPending(overview[filter.show], filter);
    const page = Math.min(filter.page, Math.max(1, Math.ceil(found.length / PAGE_ROWS)));
    const rows = await this.#view.withJobs(found.slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS));
    return {
      page: pendingPage({
        overview,
        filter: { ...filter, page },
        found: found.length,
        rows,
        redis: this.#options.link.address,
        mayAct: this.#mayAct(response),
      }),
    };
  };

  readonly #showOne: Handler = async (request, response) => {
    const explanation = await this.#explain(request);
    const { said: done } = request.query;
    const [, said] = Object.entries(SAID).find(([name]) => name === done) ?? [];
    const nowMs = this.#options.clock.nowMs();
    return { page: objectPage(explanation, nowMs, this.#mayAct(response), said) };
  };

  readonly #tryNow: Handler = async (request) => {
    const explanation = await this.#explain(request);
    const [said] = await this.#run([explanation]);
    return { next: `${pathOf(explanation.object)}?said=${said}` };
  };

  readonly #tryAll: Handler = async ({ query }) => {
    const filter = parseFilter(query);
    const overview = await this.#view.overview();
    await this.#run(filterPending(overview[filter.show], filter));
    return { next: urlOf(filter) };
  };

  /** Has objects tried now.
   * @returns what became of each */
  async #run(tried: readonly Explanation[]): Promise<readonly (keyof typeof SAID)[]> {
    const { link, prefix } = this.#options;
    const run = (queue: string): Promise<(keyof typeof SAID)[]> => {
      const ids = tried.filter((each) => queueOf(each) === queue).map(keyIdOf);
      return useQueue(link.redis, { prefix, queue }, (opened) =>
        Promise.all(ids.map((id) => promoteUnlessRunning(opened, id))),
      );
    };
    return (await Promise.all([...new Set(tried.map(queueOf))].map(run))).flat();
  }

  readonly #changeDrain: Handler = async ({ params, path }, response) => {
    const { link, prefix, clock } = this.#options;
    const driver = String(params['driver']);
    if (!(await listDrivers(link.redis, prefix)).includes(driver))
      throw new RequestRefused(404, `there is no driver ${driver} here`);
    const drain = redisDrain(link.redis, prefix, driver);
    const by = `${callerOf(response).user} (dashboard)`;
    await (path.endsWith('/drain') ? drain.begin({ by, atMs: clock.nowMs() }) : drain.end());
    this.#view.forget();
    return { next: '/' };
  };

  #mayAct(response: Response): boolean {
    return this.#options.allowActions && callerOf(response).role === 'operator';
  }

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
