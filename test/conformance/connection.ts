import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';

/** Address and credentials of the API server that a suite tests. */
export interface ApiServerUnderTest extends ApiServerAccess {
  close(): Promise<void>;
}

export interface ApiServerAccess {
  /** Base address without a trailing slash. */
  readonly url: string;
  /** PEM texts: the trusted authority, and a client certificate with its key. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  /** Bearer token of a cluster administrator, if there is no client certificate. */
  readonly token?: string;
}

/** A JSON object or array. */
export type Fields = Readonly<Record<string | number, unknown>>;

/** One answer. `body` is the parsed JSON, or undefined if the answer is not JSON. */
export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  readonly body: unknown;
}

/** Optional parts of a request. */
export interface CallOptions {
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  /** Sent as JSON; a string is sent unchanged. */
  readonly body?: unknown;
  readonly contentType?: string;
  readonly accept?: string;
  /** Replaces the administrator's credentials. */
  readonly token?: string;
  readonly impersonate?: { readonly user: string; readonly groups: readonly string[] };
}

/** One event of a watch stream. */
export interface WatchEvent {
  readonly type: string;
  readonly object: unknown;
}

/** The content types of patches. */
export const PATCH_TYPE = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const;

const EVENT_WITHIN_MS = 20_000;
const CONDITION_WITHIN_MS = 60_000;

/** Sends plain HTTP requests to one API server, without a client library. */
export class Connection {
  readonly #server: ApiServerAccess;
  readonly #agent: Agent;
  /** Has no client certificate; used for requests with their own token. */
  readonly #anonymous: Agent;
  readonly #watches = new Set<WatchStream>();
  readonly #created: string[] = [];

  constructor(server: ApiServerAccess) {
    this.#server = server;
    const ca = server.tls?.ca === undefined ? {} : { ca: server.tls.ca };
    this.#agent = new Agent({ bodyTimeout: 0, connect: { ...server.tls } });
    this.#anonymous = new Agent({ connect: ca });
  }

  /** Sends one request. Resolves for every HTTP status. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply> {
    const { statusCode, headers, body } = await this.#send(method, path, options);
    const text = await body.text();
    return { status: statusCode, headers, text, body: parse(text) };
  }

  get(path: string, query: CallOptions['query'] = {}): Promise<Reply> {
    return this.call('GET', path, { query });
  }

  /** Creates an object, which `close` deletes.
   * @returns the stored object
   * @throws AssertionError unless the answer is 201 */
  async create(path: string, object: unknown): Promise<unknown> {
    const reply = await this.call('POST', path, { body: object });
    assert.equal(reply.status, 201, `POST ${path}: ${reply.text}`);
    this.#created.push(`${path}/${textAt(reply.body, 'metadata', 'name')}`);
    return reply.body;
  }

  /** @throws AssertionError unless the answer is 200 */
  async read(path: string): Promise<unknown> {
    const reply = await this.get(path);
    assert.equal(reply.status, 200, `GET ${path}: ${reply.text}`);
    return reply.body;
  }

  patch(type: keyof typeof PATCH_TYPE, path: string, body: unknown): Promise<Reply> {
    return this.call('PATCH', path, { body, contentType: PATCH_TYPE[type] });
  }

  /** Creates a namespace with a unique name.
   * @returns the name */
  async namespace(): Promise<string> {
    const name = unique('ns');
    await this.create('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name },
    });
    return name;
  }

  /** Opens a watch, which `close` ends. */
  async watch(path: string, query: CallOptions['query'] = {}): Promise<WatchStream> {
    const { body } = await this.#send('GET', path, { query: { ...query, watch: true } });
    const stream = new WatchStream(body);
    this.#watches.add(stream);
    return stream;
  }

  /** Reads `path` until `isDone` returns true for the answer.
   * @throws Error with the last answer, after a minute */
  async until(
    path: string,
    isDone: (reply: Reply) => boolean,
    query: CallOptions['query'] = {},
  ): Promise<Reply> {
    const deadline = Date.now() + CONDITION_WITHIN_MS;
    for (;;) {
      const reply = await this.get(path, query);
      if (isDone(reply)) return reply;
      if (Date.now() > deadline)
        throw new Error(`GET ${path} did not reach the expected state: ${reply.text}`);
      await delay(50);
    }
  }

  /** Deletes the created objects in reverse order, removes their finalizers, and closes all
   * connections. */
  async close(): Promise<void> {
    for (const path of this.#created.toReversed()) {
      const { body } = await this.call('DELETE', path);
      const hasFinalizers = Array.isArray(at(body, 'metadata', 'finalizers'));
      if (hasFinalizers) await this.patch('merge', path, { metadata: { finalizers: null } });
    }
    await this.end();
  }

  /** Closes all connections. */
  async end(): Promise<void> {
    for (const watch of this.#watches) watch.close();
    await Promise.all([this.#agent.destroy(), this.#anonymous.destroy()]);
  }

  async #send(method: string, path: string, options: CallOptions) {
    const { query, body, contentType, accept, token, impersonate } = options;
    const credentials = token ?? this.#server.token;
    return request(`${this.#server.url}${path}`, {
      method,
      ...(query === undefined ? {} : { query: { ...query } }),
      dispatcher: token === undefined ? this.#agent : this.#anonymous,
      headers: {
        accept: accept ?? 'application/json',
        ...(body === undefined ? {} : { 'content-type': contentType ?? 'application/json' }),
        ...(credentials === undefined ? {} : { authorization: `Bearer ${credentials}` }),
        ...(impersonate === undefined
          ? {}
          : { 'impersonate-user': impersonate.user, 'impersonate-group': [...impersonate.groups] }),
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
  }
}

/** The events of one watch, in order. */
export class WatchStream {
  readonly #body: Readable;
  readonly #lines: AsyncIterator<string>;

  constructor(body: Readable) {
    this.#body = body;
    this.#lines = linesOf(body);
  }

  /** A refusal is a Status instead of an event and counts as an ERROR event, because some servers
   * send one and some the other.
   * @returns the next event; undefined if the server ended the stream
   * @throws Error after 20 s */
  async next(): Promise<WatchEvent | undefined> {
    const late = AbortSignal.timeout(EVENT_WITHIN_MS);
    const [line] = await Promise.race([
      this.#lines.next().then(({ value, done }) => (done === true ? [] : [value])),
      once(late, 'abort').then(() => Promise.reject(new Error('no event in time'))),
    ]);
    if (line === undefined) return undefined;
    const object: unknown = JSON.parse(line);
    const type = at(object, 'type');
    return typeof type === 'string'
      ? { type, object: at(object, 'object') }
      : { type: 'ERROR', object };
  }

  /** The next `count` events as `TYPE name`, without bookmarks. */
  async take(count: number): Promise<string[]> {
    const seen: string[] = [];
    while (seen.length < count) {
      const event = await this.next();
      if (event === undefined) return seen;
      if (event.type !== 'BOOKMARK')
        seen.push(`${event.type} ${textAt(event.object, 'metadata', 'name')}`);
    }
    return seen;
  }

  close(): void {
    this.#body.destroy();
  }
}

async function* linesOf(body: Readable): AsyncGenerator<string, undefined> {
  let rest = '';
  try {
    for await (const chunk of body.setEncoding('utf8')) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop() ?? '';
      yield* lines.filter((line) => line !== '');
    }
  } catch {
    // This client or the server closed the connection: the watch has ended.
  }
  if (rest !== '') yield rest;
}

/** The prefix with a random suffix. */
export function unique(prefix: string): string {
  return `${prefix}-${randomBytes(5).toString('hex')}`;
}

/** The value at a path; undefined if there is none. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value;
  for (const step of path) {
    if (!isFields(here)) return undefined;
    here = here[step];
  }
  return here;
}

/** The string at a path.
 * @throws AssertionError if there is none */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string {
  const text = at(value, ...path);
  assert.ok(typeof text === 'string', `no text at ${path.join('.')} of ${JSON.stringify(value)}`);
  return text;
}

/** The object at a path.
 * @throws AssertionError if there is none */
export function fieldsAt(value: unknown, ...path: readonly (string | number)[]): Fields {
  const fields = at(value, ...path);
  assert.ok(isFields(fields), `no object at ${path.join('.')} of ${JSON.stringify(value)}`);
  return fields;
}

/** The list at a path. Kubernetes omits empty lists, so an absent one is empty. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const list = at(value, ...path) ?? [];
  assert.ok(Array.isArray(list), `no list at ${path.join('.')}`);
  return list;
}

/** Names of the items of a list answer. */
export function namesOf(list: unknown): string[] {
  return listAt(list, 'items').map((item) => textAt(item, 'metadata', 'name'));
}

/** Asserts that a request was refused with this HTTP status, reason and message. */
export function refused(
  reply: Reply,
  expected: { readonly code: number; readonly reason: string; readonly message?: RegExp },
): void {
  assert.equal(reply.status, expected.code, reply.text);
  assert.deepEqual(
    {
      kind: at(reply.body, 'kind'),
      apiVersion: at(reply.body, 'apiVersion'),
      status: at(reply.body, 'status'),
    },
    { kind: 'Status', apiVersion: 'v1', status: 'Failure' },
    reply.text,
  );
  assert.equal(at(reply.body, 'code'), expected.code);
  assert.equal(at(reply.body, 'reason'), expected.reason);
  if (expected.message !== undefined) assert.match(textAt(reply.body, 'message'), expected.message);
}

/** What a refusal by the rules of a kind looks like. */
export function invalid(message: RegExp) {
  return { code: 422, reason: 'Invalid', message };
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
