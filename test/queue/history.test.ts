import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { beginTerm, forgetHistory, readHistory, showHistory } from '#src/queue/history.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

let server: TestRedis;
let driver = '';
let serial = 0;
const place = () => ({ redis: server.redis, prefix: 'csi', driver });

before(async () => {
  server = await startTestRedis();
});
after(() => server.close());
beforeEach(() => (driver = `d${(serial += 1)}.example`));

describe('the history of Redis’ data', () => {
  const historyOf = async (): Promise<string> => (await readHistory(place())).history;

  it('is the same for each driver and each time, while Redis keeps its data', async () => {
    const first = await historyOf();
    assert.match(first, /^[0-9a-f-]{36}:[0-9a-f]{40}$/);
    driver = 'another.example';
    assert.equal(await historyOf(), first);
  });

  it('is another one after Redis was emptied', async () => {
    const first = await historyOf();
    await server.redis.flushall();
    assert.notEqual(await historyOf(), first);
  });

  it('is another one after a restart with all its data', async () => {
    const [marker, replication] = (await historyOf()).split(':');
    await server.kill();
    await server.start();
    const [sameMarker, otherReplication] = (await historyOf()).split(':');
    assert.equal(sameMarker, marker);
    assert.notEqual(otherReplication, replication);
  });

  it('is another one after it was forgotten', async () => {
    const first = await historyOf();
    await forgetHistory(place());
    assert.notEqual(await historyOf(), first);
  });

  it('is not begun by a look for people', async () => {
    await server.redis.flushall();
    assert.deepEqual(await showHistory(place()), { history: '', isOfHistory: false, term: '' });
    assert.deepEqual(await server.redis.keys('*'), []);
  });
});

describe('the term of a leader', () => {
  const begin = (transitions: number, leader: string) =>
    beginTerm(place(), { transitions, leader }, false);

  it('does not go down, and the higher one is named', async () => {
    await begin(10, 'a');
    assert.equal(await begin(9, 'b'), 10);
    assert.equal(await server.redis.get(`{csi}:term:${driver}`), '10/a');
  });

  it('of the same number belongs to the leader that came last', async () => {
    await begin(3, 'a');
    assert.equal(await begin(3, 'b'), undefined);
    assert.equal(await server.redis.get(`{csi}:term:${driver}`), '3/b');
  });
});
