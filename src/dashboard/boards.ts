import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import type { AppViewRoute } from '@bull-board/api/typings/app';
import { ExpressAdapter } from '@bull-board/express';
import { Queue } from 'bullmq';
import type { Express } from 'express';
import type { RedisLink } from '../redis/connection.ts';
import { parseJob, type JobKind } from '../queue/contract.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { listQueues, type QueueEntry } from '../queue/registry.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { actionHooks } from './actions.ts';

export interface BoardsOptions {
  readonly link: RedisLink;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  /** Where the router is mounted; Bull Board's page finds its parts by it. */
  readonly mountPath: string;
  readonly allowActions: boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Bull Board over the queues that the registry names. */
export interface Boards {
  readonly router: Express;
  /** Reads the registry, at most once a second, and shows the queues it names now. Rejects when
   * Redis does not answer. */
  refresh(): Promise<void>;
  close(): Promise<void>;
}

const REFRESH_PERIOD_MS = 1000;

/** Opens nothing; queues are opened by the first refresh. */
export function createBoards(options: BoardsOptions): Boards {
  const { link, clock, log } = options;
  const server = new LocalPageAdapter().setBasePath(options.mountPath);
  const board = createBullBoard({
    queues: [],
    serverAdapter: server,
    options: {
      uiConfig: {
        boardTitle: 'sutler',
        hideDocsLink: true,
        sortQueues: true,
        locale: { lng: 'en-US' },
        miscLinks: [{ text: 'Log out', url: '/logout' }],
      },
      handlerHooks: actionHooks(options.allowActions),
    },
  });
  const shown = new Map<string, Queue>();
  let refreshedMs = -Infinity;
  let refreshing: Promise<void> | undefined;

  const show = async (entry: QueueEntry): Promise<void> => {
    const queue = new Queue(entry.name, {
      connection: link.redis,
      prefix: keyPrefix(options.prefix),
      // A page that is looked at writes nothing.
      skipMetasUpdate: true,
    });
    queue.on('error', (error) =>
      log.debug({ err: error, queue: entry.name }, 'queue connection error'),
    );
    try {
      await queue.waitUntilReady();
    } catch (error) {
      // BullMQ keeps the failure of its first look at Redis for ever.
      await queue.close();
      throw error;
    }
    shown.set(entry.name, queue);
    board.addQueue(adapterOf(queue, entry, options.allowActions));
  };
  const follow = async (): Promise<void> => {
    const entries = await listQueues(link.redis, options.prefix);
    const names = new Set(entries.map(({ name }) => name));
    for (const [name, queue] of shown) {
      if (names.has(name)) continue;
      board.removeQueue(name);
      shown.delete(name);
      await queue.close();
    }
    await Promise.all(entries.filter(({ name }) => !shown.has(name)).map(show));
    refreshedMs = clock.nowMs();
  };
  return {
    router: server.getRouter(),
    refresh() {
      if (clock.nowMs() - refreshedMs < REFRESH_PERIOD_MS) return Promise.resolve();
      refreshing ??= follow().finally(() => (refreshing = undefined));
      return refreshing;
    },
    async close() {
      await Promise.all([...shown.values()].map((queue) => queue.close()));
      shown.clear();
    },
  };
}

const WORK: Readonly<Record<JobKind, string>> = {
  claim: 'claims to provision',
  volume: 'volumes to delete',
  snapshot: 'snapshots to let go',
};

function adapterOf(queue: Queue, entry: QueueEntry, allowActions: boolean): BullMQAdapter {
  const adapter = new BullMQAdapter(queue, {
    readOnlyMode: !allowActions,
    allowRetries: false,
    description: `${WORK[entry.kind]}; driver ${entry.driver}`,
  });
  // The job's name is the kind alone; the list shows whose job it is.
  adapter.setFormatter('name', (job: { readonly data?: unknown }) => {
    const parsed = parseJob(job.data);
    if (!parsed.ok) return parsed.reason;
    const { kind, namespace, name } = parsed.key;
    return namespace === '' ? `${kind} ${name}` : `${kind} ${namespace}/${name}`;
  });
  return adapter;
}

/** Bull Board's page asks another site for fonts; ours asks nobody. */
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
        response.send(html.replaceAll(/<link\b[^>]*\bhref="https?:[^>]*>/g, ''));
      });
    });
    return this;
  }

  override setBasePath(path: string): this {
    super.setBasePath(path);
    return this;
  }

  override getRouter(): Express {
    return this.app;
  }
}
