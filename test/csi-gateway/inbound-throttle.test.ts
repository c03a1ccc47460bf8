import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { after, afterEach, before, describe, it } from 'node:test';
import type { AddressInfo } from 'node:net';
import { type Duplex, PassThrough } from 'node:stream';
import { InboundThrottle, type ThrottledSocket } from '#src/csi-gateway/inbound-throttle.ts';
import { frame, PREFACE } from '../harness/csi-frames.ts';
import { until } from '../harness/until.ts';

const PING = frame(6, { payload: Buffer.alloc(8) });

describe('InboundThrottle', () => {
  let server: Server;
  let throttle: InboundThrottle;
  const accepted: ThrottledSocket[] = [];
  const dialled: Socket[] = [];

  before(async () => {
    server = createServer({ pauseOnConnect: true }, (socket) => {
      accepted.push(throttle.wrap(socket));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
  });
  afterEach(() => {
    for (const each of [...accepted.splice(0), ...dialled.splice(0)]) each.destroy();
  });
  after(() => server.close());

  /** A connection that sends these bytes, and what arrives of them. */
  const send = async (
    bytes: Buffer,
  ): Promise<{ readonly peer: Socket; readonly wrapped: Duplex }> => {
    const peer = connect((server.address() as AddressInfo).port, '127.0.0.1');
    peer.on('error', () => undefined);
    dialled.push(peer);
    const before = accepted.length;
    await until(() => accepted.length > before, 'accepted');
    peer.write(bytes);
    const wrapped = accepted.at(-1);
    assert.ok(wrapped !== undefined);
    return { peer, wrapped };
  };
  const count = (wrapped: Duplex): (() => number) => {
    let bytes = 0;
    wrapped.on('data', (chunk: Buffer) => (bytes += chunk.length));
    return () => bytes;
  };

  it('passes on all bytes in both directions, and the end', async () => {
    throttle = new InboundThrottle(1_000_000);
    const { peer, wrapped } = await send(PREFACE);
    const received: Buffer[] = [];
    wrapped.on('data', (chunk: Buffer) => received.push(chunk));
    wrapped.write('answer');
    assert.equal(String((await once(peer, 'data'))[0]), 'answer');
    peer.end(Buffer.concat([PING, PING]));
    await once(wrapped, 'end');
    assert.deepEqual(Buffer.concat(received), Buffer.concat([PREFACE, PING, PING]));
  });

  it('passes on frames no faster than their cost allows', async () => {
    throttle = new InboundThrottle(2_000);
    const startedMs = performance.now();
    const pings = Array.from({ length: 600 }, () => PING);
    const received = count((await send(Buffer.concat([PREFACE, ...pings]))).wrapped);
    await until(() => received() === PREFACE.length + 600 * PING.length, 'all arrived', 20_000);
    // 600 frames, of which 40 may come at once and a turn may be ahead.
    assert.ok(performance.now() - startedMs > ((600 - 40 - 64) / 2_000) * 1_000);
  });

  it('gives a connection with one call its turn while others flood', async () => {
    throttle = new InboundThrottle(20_000);
    const flood = Buffer.concat([PREFACE, ...Array.from({ length: 20_000 }, () => PING)]);
    const floods = [];
    for (let i = 0; i < 10; i += 1) floods.push(count((await send(flood)).wrapped));
    const received = count((await send(Buffer.concat([PREFACE, PING]))).wrapped);
    await until(() => received() === PREFACE.length + PING.length, 'the call arrived');
    assert.ok(floods.every((bytes) => bytes() < flood.length));
  });

  it('serves a caller whose calls succeed before many connections whose calls never do', async () => {
    throttle = new InboundThrottle(20_000);
    const flood = Buffer.concat([PREFACE, ...Array.from({ length: 20_000 }, () => PING)]);
    const { peer, wrapped } = await send(PREFACE);
    accepted.at(-1)?.prove();
    const received = count(wrapped);
    const floods: (() => number)[] = [];
    for (let i = 0; i < 50; i += 1) floods.push(count((await send(flood)).wrapped));
    await until(() => floods.every((bytes) => bytes() > 0), 'each flood has had a turn');
    const pings = 20 * Math.ceil(64 / 5);
    peer.write(Buffer.concat(Array.from({ length: pings }, () => PING)));
    await until(() => received() === PREFACE.length + pings * PING.length, 'all arrived');
    // The share of one of 51 connections would have taken until each flood had 20 turns more.
    const turnBytes = (64 / 5) * PING.length;
    const passedOn = floods.reduce((bytes, each) => bytes + each(), 0);
    assert.ok(passedOn < 50 * 10 * turnBytes, `${passedOn} bytes`);
  });

  it('reads no more of a connection than its reader takes', async () => {
    throttle = new InboundThrottle(1e9);
    const flood = Buffer.concat([PREFACE, Buffer.alloc(500_000 * PING.length, PING)]);
    const { wrapped } = await send(flood);
    wrapped.pause();
    const others = count((await send(flood)).wrapped);
    await until(() => others() === flood.length, 'as many bytes of another connection arrived');
    assert.ok(wrapped.readableLength < 256 * 1024, `${wrapped.readableLength} bytes`);
    const received = count(wrapped);
    wrapped.resume();
    await until(() => received() === flood.length, 'the rest arrived');
  });

  it('needs one turn for what arrived in several parts', async () => {
    throttle = new InboundThrottle(20_000);
    const flood = Buffer.concat([PREFACE, ...Array.from({ length: 20_000 }, () => PING)]);
    const floods: (() => number)[] = [];
    for (let i = 0; i < 10; i += 1) floods.push(count((await send(flood)).wrapped));
    const { peer, wrapped } = await send(PREFACE);
    peer.setNoDelay();
    const received = count(wrapped);
    for (let i = 0; i < 200; i += 1) {
      peer.write(PING);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => received() === PREFACE.length + 200 * PING.length, 'all parts arrived');
    const passedOn = floods.reduce((bytes, each) => bytes + each(), 0);
    // 200 turns of their own would have given the others 200 turns each.
    const turnBytes = (64 / 5) * PING.length;
    assert.ok(passedOn < 10 * 100 * turnBytes, `${passedOn} bytes`);
  });

  it('ends its connection when the peer is gone, and the other way round', async () => {
    throttle = new InboundThrottle(1_000);
    const first = await send(PREFACE);
    first.wrapped.resume();
    first.peer.destroy();
    await once(first.wrapped, 'close');
    const second = await send(PREFACE);
    second.wrapped.destroy();
    await until(() => second.peer.destroyed, 'the peer learns of it');
  });

  it('goes on with other connections when a destroyed one still emits bytes', async () => {
    throttle = new InboundThrottle(1_000);
    const gone = new PassThrough();
    gone.write(Buffer.concat([PREFACE, PING]));
    throttle.wrap(gone as unknown as Socket).destroy();
    gone.emit('readable');
    const received = count((await send(Buffer.concat([PREFACE, PING]))).wrapped);
    await until(() => received() === PREFACE.length + PING.length, 'the other arrived');
  });
});
