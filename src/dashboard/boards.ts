import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import type { AppViewRoute } from '@bull-board/api/typings/app';
import { ExpressAdapter } from '@bull-board/express';
import { Queue } from 'bullmq';
import type { Express, RequestHandler } from 'express';
import { keyOf } from '../kube/resources.ts';
import { type JobKind, parseJob } from '../queue/contract.ts';
import { listQueues, type QueueEntry } from '../queue/queues.ts';
import type { RedisLink } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { callerOf } from './login.ts';
import { pathOf } from './pending-page.ts';
import { refuse } from './refusals.ts';
import { addressOf, isReading } from './request-checks.ts';

export interface BoardsOptions {
  readonly link: RedisLink;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  /** Where the router is mounted; Bull Board's page loads its assets from below it. */
  readonly mountPath: string;
  readonly allowActions: boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

const REFRESH_PERIOD_MS = 1000;
/** Bull Board's pages beside the bundle (scripts/bundle.mjs). */
const BUNDLED_UI = fileURLToPath(new URL('../bull-board-ui', import.meta.url));

/** Bull Board with the queues in the registry. Shows none before the first refresh. */
export class Boards {
  readonly router: Express;
  readonly #options: BoardsOptions;
  readonly #board: ReturnType<typeof createBullBoard>;
  /** By name. */
  readonly #queues = new Map<string, Queue>();
  #refreshedMs = -Infinity;
  #refreshing: Promise<void> | undefined;

  constructor(options: BoardsOptions) {
    this.#options = options;
    const serverAdapter = new LocalPageAdapter();
    serverAdapter.setBasePath(options.mountPath);
    this.router = serverAdapter.getRouter();
    this.#board = createBullBoard({
      queues: [],
      serverAdapter,
      options: {
        ...(existsSync(BUNDLED_UI) ? { uiBasePath: BUNDLED_UI } : {}),
        uiConfig: {
          boardTitle: 'sutler',
          hideDocsLink: true,
          sortQueues: true,
          locale: { lng: 'en-US' },
          // A job that fails is delayed, and has the reason as its error.
          jobDetails: { defaultTab: 'Error' },
          // Those of an idle queue are none; the first page has them.
          showWorkers: false,
          miscLinks: [
            { text: 'What is pending, and why', url: '/' },
            { text: 'Log out', url: '/logout' },
          ],
        },
      },
    });
  }

  /** Reads the registry, at most once a second, and shows the queues that it names now.
   * @throws the error of Redis */
  async refresh(): Promise<void> {
    if (this.#options.clock.nowMs() - this.#refreshedMs < REFRESH_PERIOD_MS) return;
    this.#refreshing ??= this.#showRegistered().finally(() => (this.#refreshing = undefined));
    await this.#refreshing;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.close()));
    this.#queues.clear();
  }

  async #showRegistered(): Promise<void> {
    const { link, prefix, clock } = this.#options;
    const entries = await listQueues(link.redis, prefix);
    const names = new Set(entries.map(({ name }) => name));
    for (const [name, queue] of this.#queues) {
      if (names.has(name)) continue;
      this.#board.removeQueue(name);
      this.#queues.delete(name);
      await queue.close();
    }
    const added = entries.filter(({ name }) => !this.#queues.has(name));
    await Promise.all(added.map((entry) => this.#show(entry)));
    this.#refreshedMs = clock.nowMs();
  }

  async #show(entry: QueueEntry): Promise<void> {
    const { link, allowActions, log } = this.#options;
    const { name } = entry;
    const prefix = keyPrefix(this.#options.prefix);
    // Without skipMetasUpdate, opening a queue would write to it.
    const queue = new Queue(name, { connection: link.redis, prefix, skipMetasUpdate: true });
    queue.on('error', (error) => log.debug({ err: error, queue: name }, 'queue connection error'));
    try {
      await queue.waitUntilReady();
    } catch (error) {
      // A BullMQ queue that failed to connect once never becomes ready.
      await queue.close();
      throw error;
    }
    this.#queues.set(name, queue);
    this.#board.addQueue(createQueueAdapter(queue, entry, allowActions));
  }
}

const DESCRIPTIONS: Readonly<Record<JobKind, string>> = {
  claim: 'claims to provision; what fails is delayed',
  volume: 'volumes to delete; what fails is delayed',
  snapshot: 'snapshots to remove our finalizer from',
  capacity: 'storage capacities to ask the driver for',
};

function createQueueAdapter(
  queue: Queue,
  { kind, driver }: QueueEntry,
  allowActions: boolean,
): BullMQAdapter {
  const adapter = new BullMQAdapter(queue, {
    readOnlyMode: !allowActions,
    allowRetries: false,
    description: `${DESCRIPTIONS[kind]}; driver ${driver}`,
    externalJobUrl: ({ data }) => {
      const parsed = parseJob(data);
      const isShown = parsed.ok && (kind === 'claim' || kind === 'volume');
      return { displayText: 'Why it is pending', href: isShown ? pathOf(keyOf(parsed.key)) : '/' };
    },
  });
  // A job's name is only its kind; show its object too.
  adapter.setFormatter('name', (job: { readonly data?: unknown }) => {
    const parsed = parseJob(job.data);
    return parsed.ok ? `${parsed.key.kind} ${keyOf(parsed.key)}` : parsed.reason;
  });
  return adapter;
}

/** No job of ours is ever in these states, so their tabs would say that nothing fails. */
const HIDDEN = ['failed', 'waiting-children', 'paused']
  .map((status) => `li:has(> a[href$="status=${status}"]) { display: none }`)
  .join('\n');

/** Removes the links to fonts on another site from Bull Board's page, and the tabs of states that
 * no job of ours has. */
class LocalPageAdapter extends ExpressAdapter {
  constructor() {
    super();
    this.app.disable('x-powered-by');
  }

  override setEntryRoute(view: AppViewRoute): ExpressAdapter {
    this.app.get(view.route, (_request, response, next) => {
      const { name, params } = view.handler({ basePath: this.basePath, uiConfig: this.uiConfig });
      response.render(name, params, (error: Error | null, html) => {
        if (error !== null) return next(error);
        const ours = html.replaceAll(/<link\b[^>]*\bhref="https?:[^>]*>/g, '');
        response.send(ours.replace('</head>', `<style>${HIDDEN}</style></head>`));
      });
    });
    return this;
  }

  override getRouter(): Express {
    return this.app;
  }
}

const READ_ONLY =
  'the dashboard is read-only; start it with --dashboard-allow-actions to promote delayed jobs';
const VIEWER = 'a viewer may only read: log in as the user of --dashboard-user';
const PROMOTE_ONLY =
  'the dashboard can only promote delayed jobs: ' +
  'other actions bypass what keeps a key from running twice';

/** The actions that are safe on a live queue: a promoted job keeps its deduplication key. After
 * retry, clean, drain, obliterate or add, a key could run twice at the same time or not at all. */
const PROMOTE_PATH = /^\/api\/queues\/[^/]+\/(?:[^/]+\/)?promote$/;

/** Refuses every request that changes something. If an operator sends it and actions are allowed,
 * those that `isKnown` names pass. */
export function guardActions(
  { allowActions, log }: Pick<BoardsOptions, 'allowActions' | 'log'>,
  isKnown: (method: string, path: string) => boolean = isPromotion,
): RequestHandler {
  return (request, response, next) => {
    const { method, path, originalUrl } = request;
    if (isReading(method)) return next();
    const { user, role } = callerOf(response);
    const fields = { user, method, path: originalUrl, address: addressOf(request) };
    const mayAct = allowActions && role === 'operator';
    if (mayAct && isKnown(method, path)) {
      log.info(fields, 'dashboard: an operator acts');
      return next();
    }
    log.warn(fields, 'dashboard: refused an action');
    if (!allowActions) response.set('allow', 'GET, HEAD');
    const detail = mayAct ? PROMOTE_ONLY : allowActions ? VIEWER : READ_ONLY;
    refuse(request, response, allowActions ? 403 : 405, detail);
  };
}

function isPromotion(method: string, path: string): boolean {
  return method === 'PUT' && PROMOTE_PATH.test(path);
}
