import type { ClusterAccess } from '#src/kube/credentials.ts';
import {
  plainAccess,
  startKubeServer,
  statusOf,
  type OpenWatch,
  type Reply,
  type Seen,
} from '../../harness/kube-server.ts';
import { until } from '../../harness/until.ts';
import { type Act, type ClusterModel, type ModelChange, type Plural } from './cluster-model.ts';

/** What goes wrong with an event of a watch. */
export const EVENT_FAULTS = [
  'none',
  'lost',
  'doubled',
  'swapped-with-the-next',
  'repeated-with-the-next',
  'cut-before',
  'cut-in-line',
  'ended',
  'expired',
  'server-error',
  'error-without-status',
  'bookmark-of-the-past',
  'bookmark-of-the-future',
  'bookmark-without-version',
  'bookmark-of-no-number',
  'of-another-kind',
] as const;

/** What goes wrong with a list, or with the opening of a watch. */
export const REQUEST_FAULTS = [
  'none',
  'stale',
  'expired',
  'server-error',
  'reset',
  'cut-in-line',
  'not-json',
] as const;

type EventFault = (typeof EVENT_FAULTS)[number];
type RequestFault = (typeof REQUEST_FAULTS)[number];

/** The faults in the order in which they happen, each once. */
export interface Faults {
  readonly events: readonly EventFault[];
  readonly requests: readonly RequestFault[];
}

/** An API server in front of a model that does wrong what the faults say, until it is honest. */
export class HostileApi {
  readonly access: ClusterAccess;
  /** The faults that have happened. */
  readonly happened = new Set<string>();
  readonly #model: ClusterModel;
  readonly #events: Iterator<EventFault>;
  readonly #requests: Iterator<RequestFault>;
  readonly #server: Awaited<ReturnType<typeof startKubeServer>>;
  readonly #watches = new Map<OpenWatch, Plural>();
  /** Events that are sent after the next one of their watch. */
  readonly #held = new Map<OpenWatch, ModelChange>();
  /** From this version on watches may begin: everything before is compacted. */
  #honestFrom: number | undefined;

  private constructor(
    model: ClusterModel,
    faults: Faults,
    server: Awaited<ReturnType<typeof startKubeServer>>,
  ) {
    this.#model = model;
    this.#events = faults.events.values();
    this.#requests = faults.requests.values();
    this.#server = server;
    this.access = plainAccess(server);
    server.handler = (seen, reply) => this.#answer(seen, reply);
  }

  static async start(model: ClusterModel, faults: Faults): Promise<HostileApi> {
    return new HostileApi(model, faults, await startKubeServer(() => undefined));
  }

  apply(act: Act): void {
    const change = this.#model.apply(act);
    if (change === undefined) return;
    for (const [watch, plural] of this.#watches)
      if (plural === change.plural) this.#send(watch, change);
  }

  /** From now on nothing goes wrong. All watches end as expired, so that everything is listed
   * again. */
  becomeHonest(): void {
    this.#model.advance();
    this.#honestFrom = this.#model.revision;
    for (const watch of this.#watches.keys()) {
      watch.send('ERROR', statusOf(410, 'Expired', 'too old resource version'));
      watch.end();
    }
    this.#watches.clear();
  }

  /** Resolves when each kind is followed from an honest list on.
   * @throws Error when one is not within that time */
  async untilFollowed(withinMs: number): Promise<void> {
    const isFollowed = () => new Set(this.#watches.values()).size === 3;
    await until(isFollowed, 'watches of all kinds', withinMs);
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  #answer(seen: Seen, reply: Reply): void {
    const plural = seen.path.split('/').at(-1) as Plural;
    const fault = this.#next(this.#requests) ?? 'none';
    if (refuse(fault, reply)) return;
    if (seen.query.get('watch') === null) return this.#list(plural, fault, reply);
    this.#watch(plural, seen.query.get('resourceVersion') ?? '', reply);
  }

  /** A stale list is one of a server whose cache has fallen behind. */
  #list(plural: Plural, fault: RequestFault, reply: Reply): void {
    const revision = this.#listedRevision(fault);
    const items = this.#model.objectsAt(plural, revision);
    const body = JSON.stringify({
      kind: 'List',
      apiVersion: 'v1',
      metadata: { resourceVersion: String(revision) },
      items,
    });
    if (fault !== 'cut-in-line') return reply.text(200, body, { 'content-type': JSON_TYPE });
    reply.response.writeHead(200, { 'content-type': JSON_TYPE });
    reply.response.write(body.slice(0, body.length / 2), () =>
      reply.response.socket?.resetAndDestroy(),
    );
  }

  #watch(plural: Plural, version: string, reply: Reply): void {
    const from = Number(version);
    if (!Number.isInteger(from))
      return reply.status(400, 'BadRequest', `invalid resource version "${version}"`);
    if (from > this.#model.revision)
      return reply.status(504, 'Timeout', `Too large resource version: ${version}`);
    if (from < (this.#honestFrom ?? 0))
      return reply.status(410, 'Expired', 'too old resource version');
    this.#follow(plural, from, reply.watch());
  }

  #listedRevision(fault: RequestFault): number {
    return fault === 'stale' ? this.#model.revision - 3 : this.#model.revision;
  }

  #follow(plural: Plural, from: number, watch: OpenWatch): void {
    this.#watches.set(watch, plural);
    watch.onClose(() => this.#watches.delete(watch));
    for (const change of this.#model.changesAfter(plural, from)) {
      if (watch.isClosed) return;
      this.#send(watch, change);
    }
  }

  #send(watch: OpenWatch, change: ModelChange): void {
    const fault = this.#next(this.#events) ?? 'none';
    const held = this.#held.get(watch);
    this.#held.delete(watch);
    const { type, object } = change;
    this.#sendWith[fault](watch, change, `${JSON.stringify({ type, object })}\n`);
    if (held !== undefined && !watch.isClosed) watch.send(held.type, held.object);
  }

  /** How each fault changes what is sent of an event. */
  readonly #sendWith: Readonly<
    Record<EventFault, (watch: OpenWatch, change: ModelChange, line: string) => void>
  > = {
    none: (watch, _, line) => watch.write(line),
    lost: () => undefined,
    doubled: (watch, _, line) => watch.write(line + line),
    'swapped-with-the-next': (watch, change) => void this.#held.set(watch, change),
    'repeated-with-the-next': (watch, change, line) => {
      this.#held.set(watch, change);
      watch.write(line);
    },
    'cut-before': (watch) => watch.drop(),
    'cut-in-line': (watch, _, line) => {
      watch.write(line.slice(0, line.length / 2));
      this.#end(watch);
    },
    ended: (watch, _, line) => {
      watch.write(line);
      this.#end(watch);
    },
    expired: (watch) => this.#fail(watch, statusOf(410, 'Expired', 'too old resource version')),
    'server-error': (watch) => this.#fail(watch, statusOf(500, 'InternalError', 'no etcd')),
    'error-without-status': (watch) => this.#fail(watch, { message: 'no Status' }),
    'bookmark-of-the-past': (watch, { revision }, line) =>
      bookmarkAfter(watch, line, String(revision - 5)),
    'bookmark-of-the-future': (watch, { revision }, line) =>
      bookmarkAfter(watch, line, String(revision + 1_000_000)),
    'bookmark-without-version': (watch, _, line) => bookmarkAfter(watch, line, undefined),
    'bookmark-of-no-number': (watch, _, line) => bookmarkAfter(watch, line, 'yesterday'),
    'of-another-kind': (watch, { type }, line) => {
      watch.send(type, { kind: 'Secret', apiVersion: 'v1', data: {} });
      watch.write(line);
    },
  };

  #fail(watch: OpenWatch, status: object): void {
    watch.send('ERROR', status);
    this.#end(watch);
  }

  #next<T extends string>(faults: Iterator<T>): T | undefined {
    if (this.#honestFrom !== undefined) return undefined;
    const { done, value } = faults.next();
    if (done === true) return undefined;
    this.happened.add(value);
    return value;
  }

  #end(watch: OpenWatch): void {
    this.#watches.delete(watch);
    watch.end();
  }
}

const JSON_TYPE = 'application/json';

/** Answers a request as its fault says.
 * @returns false where the fault is no refusal */
function refuse(fault: RequestFault, reply: Reply): boolean {
  if (fault === 'server-error') reply.status(500, 'InternalError', 'etcd is not there');
  else if (fault === 'reset') reply.response.socket?.resetAndDestroy();
  else if (fault === 'not-json') reply.text(200, 'a proxy greets you');
  else if (fault === 'expired') reply.status(410, 'Expired', 'too old resource version');
  else return false;
  return true;
}

function bookmarkAfter(watch: OpenWatch, line: string, resourceVersion: string | undefined): void {
  watch.write(line);
  watch.send('BOOKMARK', { metadata: { resourceVersion } });
}
