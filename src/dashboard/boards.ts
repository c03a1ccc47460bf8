import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import { Queue } from 'bullmq';
import type { Express, RequestHandler } from 'express';
import { keyOf } from '../kube/resources.ts';
import { JOB_KINDS, parseJob } from '../queue/contract.ts';
import { queueName } from '../queue/queue-keys.ts';
import { listDrivers } from '../queue/queues.ts';
import type { RedisLink } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import type { Logger } from '../runtime/log.ts';
import { pathOf } from './object-page.ts';

export interface BoardsOptions {
  readonly link: RedisLink;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly log: Logger;
}

/** Path of the router. Bull Board's page loads its assets from below it. */
export const BOARDS_PATH = '/queues';
/** Folder of Bull Board's pages, beside the bundle (scripts/bundle.mjs). */
const BUNDLED_UI = fileURLToPath(new URL('../bull-board-ui', import.meta.url));

/** Bull Board with the queues of all drivers, or none before the first refresh. If somebody removes
 * a driver's registration by hand, its queues are shown until the dashboard restarts. */
export class Boards {
  readonly #router: Express;
  readonly #options: BoardsOptions;
  readonly #board: ReturnType<typeof createBullBoard>;
  /** By name. */
  readonly #queues = new Map<string, Queue>();
  #refreshing: Promise<void> | undefined;

  constructor(options: BoardsOptions) {
    this.#options = options;
    const serverAdapter = new ExpressAdapter();
    serverAdapter.setBasePath(BOARDS_PATH);
    this.#router = serverAdapter.getRouter() as Express;
    this.#router.disable('x-powered-by');
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
          // An idle queue shows none. The first page has them, and Redis' address.
          showWorkers: false,
          hideRedisDetails: true,
          miscLinks: [{ text: 'What is pending, and why', url: '/' }],
        },
      },
    });
  }

  /** Shows the queues of the drivers that are registered now. */
  readonly show: RequestHandler = async (request, response, next) => {
    this.#refreshing ??= this.#showRegistered().finally(() => (this.#refreshing = undefined));
    await this.#refreshing;
    this.#router(request, response, next);
  };

  async close(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.close()));
    this.#queues.clear();
  }

  async #showRegistered(): Promise<void> {
    const { link, prefix } = this.#options;
    const drivers = await listDrivers(link.redis, prefix);
    const names = drivers.flatMap((driver) => JOB_KINDS.map((kind) => queueName(kind, driver)));
    const added = names.filter((name) => !this.#queues.has(name));
    await Promise.all(added.map((name) => this.#show(name)));
  }

  async #show(name: string): Promise<void> {
    const { link, prefix, log } = this.#options;
    // Without skipMetasUpdate, opening a queue would write to it.
    const queue = new Queue(name, {
      connection: link.redis,
      prefix: keyPrefix(prefix),
      skipMetasUpdate: true,
    });
    queue.on('error', (error) => log.debug({ err: error, queue: name }, 'queue connection error'));
    try {
      await queue.waitUntilReady();
    } catch (error) {
      // A BullMQ queue that failed to connect once is never ready again.
      await queue.close();
      throw error;
    }
    this.#queues.set(name, queue);
    this.#board.addQueue(boardOf(queue));
  }
}

/** Makes a read-only board of a queue. Each job links to the page that says why it waits. */
function boardOf(queue: Queue): BullMQAdapter {
  const board = new BullMQAdapter(queue, {
    readOnlyMode: true,
    description: 'A job that fails is delayed until its next run, and is never in "Failed".',
    externalJobUrl: ({ data, finishedOn }) => {
      const parsed = parseJob(data);
      return parsed.ok && !finishedOn
        ? {
            displayText: 'Why it waits, and who has to act',
            href: pathOf({ kind: parsed.key.kind, object: keyOf(parsed.key) }),
          }
        : { displayText: 'What is pending', href: '/' };
    },
  });
  // A job's name is only its kind, so this adds its object.
  board.setFormatter('name', (job: { readonly data?: unknown }) => {
    const parsed = parseJob(job.data);
    return parsed.ok ? `${parsed.key.kind} ${keyOf(parsed.key)}` : parsed.reason;
  });
  return board;
}
