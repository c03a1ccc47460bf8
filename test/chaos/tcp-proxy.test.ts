import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startTcpProxy, type TcpProxy } from '../../chaos/tcp-proxy.ts';

describe('startTcpProxy', () => {
  const echo = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  let proxy: TcpProxy;
  const clients: Socket[] = [];
  const open = async (): Promise<Socket> => {
    const client = connect(proxy.port, '127.0.0.1');
    clients.push(client);
    // A cut connection emits an error; the test that waits for it adds its own listener.
    client.on('error', () => undefined);
    await once(client, 'connect');
    return client;
  };
  const answers = async (client: Socket, text: string): Promise<boolean> => {
    client.write(text);
    return Promise.race([
      once(client, 'data').then(([data]) => String(data) === text),
      delay(200, false),
    ]);
  };

  before(async () => {
    echo.listen(0, '127.0.0.1');
    await once(echo, 'listening');
    proxy = await startTcpProxy('127.0.0.1');
    proxy.aim((echo.address() as AddressInfo).port);
  });
  after(async () => {
    for (const client of clients) client.destroy();
    await proxy.close();
    echo.close();
  });

  it('passes bytes both ways', async () => assert.ok(await answers(await open(), 'hello')));

  it('resets present and new connections while cut, and forwards again afterwards', async () => {
    const client = await open();
    assert.ok(await answers(client, 'before'));
    const reset = once(client, 'error');
    proxy.set('cut');
    const [error] = (await reset) as [NodeJS.ErrnoException];
    assert.equal(error.code, 'ECONNRESET');
    const late = connect(proxy.port, '127.0.0.1');
    clients.push(late);
    await new Promise((resolve) => late.once('error', resolve));
    proxy.set('open');
    assert.ok(await answers(await open(), 'after'));
  });

  it('forwards no data while it hangs, and all of it afterwards', async () => {
    const client = await open();
    assert.ok(await answers(client, 'before'));
    proxy.set('hang');
    const late = await open();
    assert.equal(await answers(client, 'delayed'), false);
    const [delayed, first] = [once(client, 'data'), once(late, 'data')];
    late.write('late');
    proxy.set('open');
    assert.equal(String((await delayed)[0]), 'delayed');
    assert.equal(String((await first)[0]), 'late');
  });
});
