import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { createKubeClient } from '#src/kube/client.ts';
import { ListWatch, type ObjectSink } from '#src/kube/list-watch.ts';
import { claims } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type OpenWatch, plainAccess, type Seen, startKubeServer } from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const server = await startKubeServer(() => {});
const access = plainAccess(server);
const client = createKubeClient({ access, userAgent: 'sutler-test/1', log: silentLog });
after(async () => {
  await client.close();
  await server.close();
});

const object = (name: string, version: string) => ({
  metadata: { name, resourceVersion: version },
});
let watches: OpenWatch[] = [];
let running: ListWatch;
/** The version of everything, as a list has it. */
let serverVersion: string;
/** Answers a list that waits. */
let answer = (): void => undefined;
let isSlow = false;
const lists = (): Seen[] => server.seen.filter(({ query }) => !query.has('watch'));
const wholeLists = (): Seen[] => lists().filter(({ query }) => query.get('limit') !== '1');

function start(): ListWatch {
  const ignore = (): void => undefined;
  const sink: ObjectSink = {
    size: 0,
    beginList: ignore,
    put: ignore,
    remove: ignore,
    endList: ignore,
  };
  const backoff = { startMs: 4, maxMs: 20 };
  running = new ListWatch({ client, resource: claims, log: silentLog, backoff }, sink);
  return running;
}

beforeEach(() => {
  server.seen.length = 0;
  [watches, serverVersion, isSlow] = [[], '10', false];
  server.handler = (seen, reply) => {
    if (seen.query.has('watch')) return void watches.push(reply.watch());
    const metadata = { resourceVersion: serverVersion };
    answer = () => reply.json(200, { metadata, items: [object('a', '1')] });
    if (!isSlow) answer();
  };
});
afterEach(() => running.stop());

describe('a list that is asked for again', () => {
  it('begins again while it is under way', async () => {
    isSlow = true;
    const listWatch = start();
    await until(() => lists().length === 1, 'it was asked for');
    isSlow = false;
    listWatch.relist();
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.equal(lists().length, 2);
  });
});

describe('the time when a watch last brought something', () => {
  it('is before the list on which the watch builds', async () => {
    isSlow = true;
    const listWatch = start();
    await until(() => lists().length === 1, 'it was asked for');
    const askedMs = performance.now();
    answer();
    await until(() => listWatch.isFollowing, 'the watch is open');
    assert.ok((listWatch.heardMs ?? Infinity) <= askedMs);
  });

  it('is unknown when the watch is opened again, until it brings something', async () => {
    const listWatch = start();
    await until(() => listWatch.isFollowing, 'the watch is open');
    watches[0]?.end();
    await until(() => watches.length === 2 && listWatch.isFollowing, 'it is open again');
    assert.equal(listWatch.heardMs, undefined);
    watches[1]?.send('ADDED', object('b', '11'));
    await until(() => listWatch.heardMs !== undefined, 'it has brought something');
  });
});

describe('a watch that is opened again', () => {
  for (const [title, end] of [
    ['broke off', (watch?: OpenWatch) => watch?.drop()],
    ['was ended by the server', (watch?: OpenWatch) => watch?.end()],
  ] as const)
    it(`after it ${title} lists, if the server went back to an older version`, async () => {
      start();
      await until(() => watches.length === 1, 'a watch is open');
      serverVersion = '9';
      end(watches[0]);
      await until(() => watches.length === 2, 'a new watch');
      assert.equal(watches[1]?.seen.query.get('resourceVersion'), '9');
      assert.equal(wholeLists().length, 2);
    });
});
