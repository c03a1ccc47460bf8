import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type NewSocketLimits, NewSockets } from '#src/runtime/new-sockets.ts';
import { until } from '../harness/until.ts';

describe('NewSockets', () => {
  let server: Server;
  let sockets: NewSockets;
  const begun: Socket[] = [];
  let refused = 0;
  /** Connections that have reached the server. */
  let accepted = 0;
  const dialled: Socket[] = [];

  const openSockets = (limits: Partial<NewSocketLimits>): NewSockets =>
    new NewSockets({
      limits: { burst: 32, perSecond: 250, silentMs: 30_000, turnMs: 30_000, ...limits },
      begin: (socket) => void begun.push(socket),
      onRefused: () => (refused += 1),
    });

  // A server of its own for each test: connections of the test before may still arrive.
  beforeEach(async () => {
    refused = 0;
    accepted = 0;
    sockets = openSockets({});
    server = createServer({ pauseOnConnect: true }, (socket) => {
      accepted += 1;
      sockets.add(socket);
    });
    await once(server.listen(0, '127.0.0.1', 2_000), 'listening');
  });
  afterEach(() => {
    server.close();
    sockets.endAll();
    for (const each of [...begun.splice(0), ...dialled.splice(0)]) each.destroy();
  });

  const dial = (count: number, greeting = 'hello', localAddress = '127.0.0.1'): readonly Socket[] =>
    Array.from({ length: count }, () => {
      const { port } = server.address() as AddressInfo;
      const socket = connect({ port, host: '127.0.0.1', localAddress });
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
    sockets = openSockets({ silentMs: 50 });
    const [silent] = dial(1, '');
    await until(() => silent?.destroyed, 'it is ended');
    assert.equal(begun.length, 0);
    assert.equal(refused, 1);
  });

  it('does not let the oldest connection of a network wait for ever', async () => {
    sockets = openSockets({ burst: 1, perSecond: 50 });
    const [first] = dial(1);
    await until(() => begun.length === 1, 'the burst is used up');
    const [oldest] = dial(1);
    await until(() => oldest?.connecting === false, 'connected');
    dial(100);
    const isBegun = (socket: Socket | undefined): boolean =>
      begun.some(({ remotePort }) => remotePort === socket?.localPort);
    await until(() => isBegun(oldest), 'the oldest began');
    assert.ok(isBegun(first) && begun.length < 50, `${begun.length} began before it`);
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

  it('ends a connection that has waited too long for its turn', async () => {
    sockets = openSockets({ burst: 1, perSecond: 0.001, turnMs: 50 });
    dial(3);
    const ended = (): number => dialled.filter(({ destroyed }) => destroyed).length;
    await until(() => ended() === 2, 'two are ended');
    assert.equal(begun.length, 1);
  });

  it('lets networks take turns', async () => {
    sockets = openSockets({ burst: 1, perSecond: 50 });
    dial(200);
    await until(() => begun.length >= 2, 'a flood waits');
    const [other] = dial(1, 'hello', '127.0.0.2');
    dial(200);
    await until(
      () => begun.some(({ remotePort }) => remotePort === other?.localPort),
      'the other network has its turn',
    );
    assert.ok(begun.length < 150, `${begun.length} began before it`);
  });

  it('keeps no connection with many bytes waiting', async () => {
    dial(300, 'x'.repeat(60_000));
    await until(() => begun.length + refused >= 300, 'each began or was ended');
    assert.ok(refused >= 200, `${refused} were ended`);
  });

  it('keeps no connection waiting that sends many bytes later', async () => {
    const waiting = dial(200);
    await until(() => begun.length >= 8, 'the others wait');
    for (const socket of waiting) socket.write('x'.repeat(60_000));
    await until(() => refused >= 50, 'they are ended');
  });

  it('does not report a connection that its peer ends, as a probe of the port does', async () => {
    const [probe = assert.fail()] = dial(1, '');
    await once(probe, 'connect');
    probe.end();
    await once(probe, 'close');
    dial(1);
    await until(() => begun.length === 1, 'another one began');
    assert.equal(refused, 0);
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
    await until(() => accepted === 30, 'all have reached the server');
    for (const socket of begun.slice(0, 10)) sockets.addUnknown(socket);
    sockets.endAll();
    assert.equal(begun.filter(({ destroyed }) => destroyed).length, 10);
    await until(() => silent.every(({ destroyed }) => destroyed), 'their peers learn of it');
  });
});
