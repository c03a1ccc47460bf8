import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { NewSockets } from '#src/csi-gateway/new-sockets.ts';
import { until } from '../harness/until.ts';

describe('NewSockets', () => {
  let server: Server;
  let sockets: NewSockets;
  const begun: Socket[] = [];
  let refused = 0;
  const dialled: Socket[] = [];

  const openSockets = (maxWaitMs: number): NewSockets =>
    new NewSockets({
      maxWaitMs,
      begin: (socket) => void begun.push(socket),
      onRefused: () => (refused += 1),
    });

  // A server of its own for each test: connections of the test before may still arrive.
  beforeEach(async () => {
    refused = 0;
    sockets = openSockets(30_000);
    server = createServer({ pauseOnConnect: true }, (socket) => sockets.add(socket));
    await once(server.listen(0, '127.0.0.1', 2_000), 'listening');
  });
  afterEach(() => {
    server.close();
    sockets.endAll();
    for (const each of [...begun.splice(0), ...dialled.splice(0)]) each.destroy();
  });

  const dial = (count: number, greeting = 'hello'): readonly Socket[] =>
    Array.from({ length: count }, () => {
      const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
      socket.on('error', () => undefined);
      if (greeting !== '') socket.write(greeting);
      dialled.push(socket);
      return socket;
    });

  it('begins a few connections at once and the others one after another', async () => {
    const startedMs = performance.now();
    dial(132);
    await until(() => begun.length === 132, 'all began');
    // 32 at once, then 250 a second.
    assert.ok(performance.now() - startedMs >= 390);
    assert.equal(refused, 0);
  });

  it('passes on the first bytes of a connection', async () => {
    dial(1, 'first bytes');
    await until(() => begun.length === 1, 'it began');
    const [socket] = begun;
    assert.equal(String(socket?.read()), 'first bytes');
  });

  it('begins no connection that says nothing, and ends it in time', async () => {
    sockets = openSockets(50);
    const [silent] = dial(1, '');
    await until(() => silent?.destroyed, 'it is ended');
    assert.equal(begun.length, 0);
    assert.equal(refused, 1);
  });

  it('begins the newest connection of a network first', async () => {
    const older = dial(100);
    await until(() => begun.length >= 32, 'the others wait');
    const [newest] = dial(1);
    await until(
      () => begun.some(({ remotePort }) => remotePort === newest?.localPort),
      'the newest began',
    );
    assert.ok(begun.length < older.length, `${begun.length} began before it`);
  });

  it('keeps out no new connection when silent ones fill all places', async () => {
    const silent = dial(1_600, '');
    await until(() => refused > 0, 'the places are taken');
    dial(1);
    await until(() => begun.length === 1, 'it began');
    assert.ok(silent.filter(({ destroyed }) => !destroyed).length >= 1_000);
  });

  it('forgets a connection whose peer has gone while it waited', async () => {
    dial(32);
    await until(() => begun.length >= 32, 'the burst is used up');
    const [last] = dial(30).slice(-1);
    last?.destroy();
    await until(() => begun.length >= 61, 'the others began');
  });

  it('ends the oldest of a network that has too many which are not identified', async () => {
    dial(140);
    await until(() => begun.length === 140, 'all began');
    for (const socket of begun) sockets.addUnknown(socket);
    assert.deepEqual(
      begun.map(({ destroyed }) => destroyed),
      begun.map((_, index) => index < 12),
    );
  });

  it('does not count connections that were identified', async () => {
    dial(140);
    await until(() => begun.length === 140, 'all began');
    for (const socket of begun) {
      sockets.addUnknown(socket);
      sockets.identified(socket);
    }
    assert.ok(begun.every(({ destroyed }) => !destroyed));
  });

  it('ends those that wait and those that are not identified, all at once', async () => {
    dial(20);
    const silent = dial(10, '');
    await until(() => begun.length === 20, 'they began');
    await Promise.all(silent.map(({ connecting }) => until(() => !connecting, 'connected')));
    for (const socket of begun.slice(0, 10)) sockets.addUnknown(socket);
    sockets.endAll();
    assert.equal(begun.filter(({ destroyed }) => destroyed).length, 10);
    await until(() => silent.every(({ destroyed }) => destroyed), 'their peers learn of it');
  });
});
