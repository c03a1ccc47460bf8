import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, createServer, type ServerHttp2Stream } from 'node:http2';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import { describe, it } from 'node:test';
import { endStuckSession } from '#src/driver/end-stuck-session.ts';
import { until } from '../harness/until.ts';

describe('a session that a status of 128 KiB has stopped', () => {
  it('ends although a SETTINGS frame of before was never acknowledged', async (t) => {
    const streams: ServerHttp2Stream[] = [];
    const driver = createServer({ maxSendHeaderBlockLength: 1 << 20 });
    driver.on('stream', (stream) => streams.push(stream.on('error', () => undefined)));
    driver.on('sessionError', () => undefined);
    t.after(() => driver.close());
    await once(driver.listen(0, '127.0.0.1'), 'listening');
    /** Passes on what the driver says, and holds back what the session says once it is told to. */
    let isHeld = false;
    const between = createTcpServer((near) => {
      const far = connect((driver.address() as AddressInfo).port, '127.0.0.1');
      for (const socket of [near, far]) socket.on('error', () => undefined);
      near.on('data', (bytes) => {
        if (!isHeld) far.write(bytes);
      });
      far.pipe(near);
      near.on('close', () => far.destroy());
    });
    t.after(() => between.close());
    await once(between.listen(0, '127.0.0.1'), 'listening');
    const session = connectHttp2(`http://127.0.0.1:${(between.address() as AddressInfo).port}`);
    t.after(() => session.destroy());
    session.on('error', () => undefined);
    session.request({ ':method': 'POST' }).on('error', () => undefined);
    await until(() => streams.length > 0 && !session.pendingSettingsAck, 'the call is under way');

    isHeld = true;
    endStuckSession(session, () => true);
    await until(() => session.pendingSettingsAck, 'a SETTINGS frame is on its way');
    streams[0]?.respond({ 'grpc-message': 'x'.repeat(128 * 1024) });
    await until(() => session.destroyed, 'the session has ended');
    assert.ok(session.destroyed);
  });
});
