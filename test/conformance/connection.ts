import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';

/** What a suite needs to know about the API server that it describes. */
export interface ApiServerUnderTest {
  /** Base address without a trailing slash. */
  readonly url: string;
  /** PEM texts: whom to trust, and a client certificate. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  /** Bearer token of a cluster administrator, where no client certificate says who we are. */
  readonly token?: string;
  close(): Promise<void>;
}

/** A value that has fields. */
export type Fields = Readonly<Record<string | number, unknown>>;

/** One answer. `body` is the parsed JSON, or undefined where the server sent something else. */
export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  readonly body: unknown;
}

/** What may be set on a request beside its path. */
export interface CallOptions {
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  /** Sent as JSON; a string goes as it is. */
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

/** The three ways to patch that we use. */
export const PATCH_TYPE = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const;

const EVENT_WITHIN_MS = 20_000;
const CONDITION_WITHIN_MS = 60_000;

/** Plain HTTP to one API server: no client library stands between the suite and the facts. */
export class Connection {
  readonly #server: ApiServerUnderTest;
  readonly #agent: Agent;
  /** Without the client certificate: for requests that bring a token of their own. */
  readonly #anonymous: Agent;
  readonly #watches = new Set<WatchStream>();
  readonly #made: string[] = [];

  constructor(server: ApiServerUnderTest) {
    this.#server = server;
    const ca = server.tls?.ca === undefined ? {} : { ca: server.tls.ca };
    this.#agent = new Agent({ bodyTimeout: 0, connect: { ...server.tls } });
    this.#anonymous = new Agent({ connect: ca });
  }

  /** Sends one request; every HTTP status is an answer, not an error. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply> {
    const { statusCode, headers, body } = await this.#send(method, path, options);
    const text = await body.text();
    return { status: statusCode, headers, text, body: parse(text) };
  }

  get(path: string, query: CallOptions['query'] = {}): Promise<Reply> {
    return this.call('GET', path, { query });
  }

  /** Creates, expects 201 and gives the stored object; what is made so is deleted in close(). */
  async create(path: string, object: unknown): Promise<unknown> {
    const reply = await this.call('POST', path, { body: object });
    assert.equal(reply.status, 201, `POST ${path}: ${reply.text}`);
    this.#made.push(`${path}/${textAt(reply.body, 'metadata', 'name')}`);
    return reply.body;
  }

  /** Reads, expects 200. */
  async read(path: string): Promise<unknown> {
    const reply = await this.get(path);
    assert.equal(reply.status, 200, `GET ${path}: ${reply.text}`);
    return reply.body;
  }

  patch(type: keyof typeof PATCH_TYPE, path: string, body: unknown): Promise<Reply> {
    return this.call('PATCH', path, { body, contentType: PATCH_TYPE[type] });
  }

  /** A new namespace with a name of its own. */
  async namespace(): Promise<string> {
    const name = unique('ns');
    await this.create('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name },
    });
    return name;
  }

  /** Opens a watch; ended by its own close() or ours. */
  async watch(path: string, query: CallOptions['query'] = {}): Promise<WatchStream> {
    const { statusCode, body } = await this.#send('GET', path, {
      query: { ...query, watch: true },
    });
    if (statusCode !== 200) return new WatchStream(statusCode, [await body.text()]);
    const stream = new WatchStream(statusCode, body, () => body.destroy());
    this.#watches.add(stream);
    return stream;
  }

  /** Reads `path` until `holds` is true of the answer.
   * @throws after a minute, with the last answer */
  async until(
    path: string,
    holds: (reply: Reply) => boolean,
    query: CallOptions['query'] = {},
  ): Promise<Reply> {
    const deadline = Date.now() + CONDITION_WITHIN_MS;
    for (;;) {
      const reply = await this.get(path, query);
      if (holds(reply)) return reply;
      if (Date.now() > deadline)
        throw new Error(`GET ${path} did not become what was awaited: ${reply.text}`);
      await delay(50);
    }
  }

  /** Deletes what was made, in reverse, finalizers or not, and closes every connection. */
  async close(): Promise<void> {
    for (const watch of this.#watches) watch.close();
    for (const path of this.#made.toReversed()) {
      const { body } = await this.call('DELETE', path);
      const left = Array.isArray(at(body, 'metadata', 'finalizers'));
      if (left) await this.patch('merge', path, { metadata: { finalizers: null } });
    }
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
  readonly status: number;
  readonly #events: WatchEvent[] = [];
  readonly #destroy: () => void;
  #wake: () => void = () => {};
  #hasEnded = false;

  constructor(
    status: number,
    chunks: AsyncIterable<Uint8Array | string> | Iterable<string>,
    destroy: () => void = () => {},
  ) {
    this.status = status;
    this.#destroy = destroy;
    void this.#read(chunks);
  }

  /** The next event, or undefined when the server ended the stream.
   * @throws after 20 s without either */
  async next(): Promise<WatchEvent | undefined> {
    const deadline = Date.now() + EVENT_WITHIN_MS;
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined || this.#hasEnded) return event;
      await new Promise<void>((done, fail) => {
        const timer = setTimeout(
          () => fail(new Error(`no event within ${EVENT_WITHIN_MS} ms`)),
          deadline - Date.now(),
        );
        this.#wake = () => {
          clearTimeout(timer);
          done();
        };
      });
    }
  }

  /** The next `count` events as `TYPE name`, bookmarks left out. */
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
    this.#destroy();
  }

  async #read(chunks: AsyncIterable<Uint8Array | string> | Iterable<string>): Promise<void> {
    const decoder = new TextDecoder();
    let rest = '';
    const addLines = (text: string): void => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line !== '') this.#add(JSON.parse(line));
      this.#wake();
    };
    try {
      for await (const chunk of chunks)
        addLines(
          typeof chunk === 'string' ? `${chunk}\n` : decoder.decode(chunk, { stream: true }),
        );
    } catch {
      // Closed by this client, or by the server in the middle of the stream: both end the watch.
    }
    this.#hasEnded = true;
    this.#wake();
  }

  /** A refusal is one Status, not an event; it reads as an ERROR event, so that both kinds of
   * servers look alike. */
  #add(line: unknown): void {
    const type = at(line, 'type');
    this.#events.push(
      typeof type === 'string'
        ? { type, object: at(line, 'object') }
        : { type: 'ERROR', object: line },
    );
  }
}

/** A name that is used only once. */
export function unique(prefix: string): string {
  return `${prefix}-${randomBytes(5).toString('hex')}`;
}

/** The value at a path, or undefined where there is none. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value;
  for (const step of path) {
    if (!isFields(here)) return undefined;
    here = here[step];
  }
  return here;
}

/** The text at a path.
 * @throws AssertionError where there is none */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string {
  const text = at(value, ...path);
  assert.ok(typeof text === 'string', `no text at ${path.join('.')} of ${JSON.stringify(value)}`);
  return text;
}

/** The object at a path.
 * @throws AssertionError where there is none */
export function fieldsAt(value: unknown, ...path: readonly (string | number)[]): Fields {
  const fields = at(value, ...path);
  assert.ok(isFields(fields), `no object at ${path.join('.')} of ${JSON.stringify(value)}`);
  return fields;
}

/** The texts of the list at a path. */
export function textsAt(value: unknown, ...path: readonly (string | number)[]): readonly string[] {
  return listAt(value, ...path).map((text) => textAt(text));
}

/** The list at a path; an absent one is empty, as Kubernetes leaves empty lists out. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const list = at(value, ...path) ?? [];
  assert.ok(Array.isArray(list), `no list at ${path.join('.')}`);
  return list;
}

/** Names of the items of a list answer. */
export function namesOf(list: unknown): string[] {
  return listAt(list, 'items').map((item) => textAt(item, 'metadata', 'name'));
}

/** Asserts a refusal: HTTP status, Status.reason and a part of its message. */
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
