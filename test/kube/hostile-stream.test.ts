import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import * as fc from 'fast-check';
import { createKubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { volumes } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  type OpenWatch,
  plainAccess,
  type Reply,
  startKubeServer,
  statusOf,
} from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

/** A fixed seed, so that every run has the same inputs; a failure prints the smallest input. */
const SEED = 20_261_123;
const RUNS = 100;
/** Runs wait for sockets and short back-offs, so some run at once. */
const LANES = 10;

interface Change {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: KubeObject;
  readonly revision: number;
}
type Sabotage = (watch: OpenWatch, change: Change, line: string) => void;

const expired = statusOf(410, 'Expired', 'too old resource version');
const end = (watch: OpenWatch, status: object): void => {
  watch.send('ERROR', status);
  watch.end();
};
const bookmark =
  (versionOf: (revision: number) => unknown): Sabotage =>
  (watch, { revision }, line) => {
    watch.write(line);
    watch.send('BOOKMARK', { metadata: { resourceVersion: versionOf(revision) } });
  };

/** What an API server does with an event instead of sending it once. */
const EVENT_FAULTS: Readonly<Record<string, Sabotage>> = {
  lost: () => undefined,
  doubled: (watch, _, line) => watch.write(line + line),
  cut: (watch) => watch.drop(),
  ended: (watch, _, line) => (watch.write(line), watch.end()),
  expired: (watch) => end(watch, expired),
  'cut in its line': (watch, _, line) => (watch.write(line.slice(0, 30)), watch.end()),
  'server error': (watch) => end(watch, statusOf(500, 'InternalError', 'no etcd')),
  'error without Status': (watch) => end(watch, { message: 'no Status' }),
  'bookmark of the past': bookmark((revision) => String(revision - 5)),
  'bookmark of the future': bookmark((revision) => String(revision + 1_000_000)),
  'bookmark without version': bookmark(() => undefined),
  'bookmark of no number': bookmark(() => 'yesterday'),
  'another kind': (watch, { type }, line) => {
    watch.send(type, { kind: 'Secret', apiVersion: 'v1', data: {} });
    watch.write(line);
  },
};
/** Answers of an API server that refuses a request. */
const REFUSALS: Readonly<Record<string, (reply: Reply) => void>> = {
  expired: (reply) => reply.json(410, expired),
  'server error': (reply) => reply.status(500, 'InternalError', 'no etcd'),
  reset: (reply) => void reply.response.socket?.resetAndDestroy(),
  'no JSON': (reply) => reply.text(200, 'a proxy greets you'),
};
const REQUEST_FAULTS = ['stale', 'cut', ...Object.keys(REFUSALS)];

const scenario = fc.record({
  acts: fc.array(
    fc.record({
      isDeletion: fc.boolean(),
      name: fc.constantFrom('a', 'b', 'c'),
      pause: fc.constantFrom('none', 'none', '1 ms', 'until it watches'),
    }),
    { maxLength: 40 },
  ),
  events: fc.array(fc.constantFrom('none', ...Object.keys(EVENT_FAULTS)), { maxLength: 20 }),
  requests: fc.array(fc.constantFrom('none', ...REQUEST_FAULTS), { maxLength: 8 }),
});
/** The faults that have happened in any run. */
const happened = new Set<string>();

describe('a reflector of a hostile stream of events', () => {
  it('has the objects of the API server after a relist', async () => {
    const lanes = Array.from({ length: LANES }, (_, lane) =>
      fc.assert(fc.asyncProperty(scenario, play), { numRuns: RUNS / LANES, seed: SEED + lane }),
    );
    await Promise.all(lanes);
    const all = new Set(['none', ...Object.keys(EVENT_FAULTS), ...REQUEST_FAULTS]);
    assert.deepEqual(happened, all);
  });
});

async function play(given: typeof scenario extends fc.Arbitrary<infer T> ? T : never) {
  const history: Change[] = [];
  let revision = 100;
  /** From this version on watches may begin. */
  let honestFrom: number | undefined;
  const events = given.events.values();
  const requests = given.requests.values();
  const watches = new Set<OpenWatch>();
  const next = (faults: Iterator<string>): string => {
    const { value = 'none' } = honestFrom === undefined ? faults.next() : {};
    happened.add(value);
    return value;
  };
  const objectsAt = (at: number): readonly KubeObject[] => {
    const objects = new Map<string, KubeObject>();
    for (const { type, object, revision: of } of history) {
      if (of > at) break;
      if (type === 'DELETED') objects.delete(object.metadata.name);
      else objects.set(object.metadata.name, object);
    }
    return [...objects.values()];
  };
  const send = (watch: OpenWatch, change: Change): void => {
    const { type, object } = change;
    const line = `${JSON.stringify({ type, object })}\n`;
    const sabotage = EVENT_FAULTS[next(events)];
    if (sabotage === undefined) watch.write(line);
    else sabotage(watch, change, line);
    if (watch.isClosed) watches.delete(watch);
  };
  const act = (name: string, isDeletion: boolean): void => {
    const known = objectsAt(revision).find(({ metadata }) => metadata.name === name);
    if (isDeletion && known === undefined) return;
    revision += 1;
    const uid = known?.metadata.uid ?? `uid-${revision}`;
    const object = { metadata: { name, uid, resourceVersion: String(revision) } };
    const type = isDeletion ? 'DELETED' : known === undefined ? 'ADDED' : 'MODIFIED';
    const change = { type, object, revision } as const;
    history.push(change);
    for (const watch of watches) send(watch, change);
  };

  const server = await startKubeServer(({ query }, reply) => {
    const fault = next(requests);
    const refusal = REFUSALS[fault];
    if (refusal !== undefined) return refusal(reply);
    return query.has('watch')
      ? openWatch(query.get('resourceVersion'), reply)
      : answerList(fault, reply);
  });
  const answerList = (fault: string, reply: Reply): void => {
    const at = fault === 'stale' ? revision - 3 : revision;
    const body = { metadata: { resourceVersion: String(at) }, items: objectsAt(at) };
    if (fault !== 'cut') return reply.json(200, body);
    const text = JSON.stringify(body);
    reply.response.writeHead(200);
    reply.response.write(text.slice(0, text.length / 2), () =>
      reply.response.socket?.resetAndDestroy(),
    );
  };
  const openWatch = (version: string | null, reply: Reply): void => {
    const from = Number(version);
    if (!Number.isInteger(from)) return reply.status(400, 'BadRequest', 'invalid version');
    if (from > revision) return reply.status(504, 'Timeout', 'Too large resource version');
    if (from < (honestFrom ?? 0)) return reply.json(410, expired);
    const watch = reply.watch();
    watches.add(watch);
    watch.onClose(() => watches.delete(watch));
    for (const change of history)
      if (change.revision > from && !watch.isClosed) send(watch, change);
  };
  const access = plainAccess(server);
  const client = createKubeClient({ access, userAgent: 'test', log: silentLog });
  /** What somebody knows who has heard of each change. */
  const known = new Map<string, string>();
  const reflector = startReflector<KubeObject>({
    client,
    resource: volumes,
    transform: (raw) => raw as KubeObject,
    onChange: ({ type, object: { metadata } }) =>
      type === 'deleted'
        ? known.delete(metadata.name)
        : known.set(metadata.name, metadata.resourceVersion),
    backoff: { startMs: 2, maxMs: 10 },
    log: silentLog,
  });
  try {
    const untilWatched = (): Promise<void> => until(() => watches.size > 0, 'a watch is open');
    await untilWatched();
    for (const { name, isDeletion, pause } of given.acts) {
      act(name, isDeletion);
      if (pause === '1 ms') await delay(1);
      if (pause === 'until it watches') await untilWatched();
    }
    // All watches end as expired, so that everything is listed again.
    honestFrom = revision += 1;
    for (const watch of watches) end(watch, expired);
    const versions = (objects: Iterable<KubeObject>): string =>
      [...objects]
        .map(({ metadata }) => metadata.resourceVersion)
        .toSorted()
        .join();
    const expected = versions(objectsAt(revision));
    await until(() => versions(reflector.list()) === expected, `the versions ${expected}`);
    assert.equal([...known.values()].toSorted().join(), expected);
  } finally {
    await reflector.stop();
    await client.close();
    await server.close();
  }
}
