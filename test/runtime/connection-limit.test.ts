import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { ConnectionLimit } from '#src/runtime/connection-limit.ts';

/** Stands in for a socket: real ones of this machine all have one network. */
class StandIn extends EventEmitter {
  isEnded = false;
  readonly remoteAddress: string;
  constructor(address: string) {
    super();
    this.remoteAddress = address;
  }
  destroy(): void {
    this.isEnded = true;
    setImmediate(() => this.emit('close'));
  }
}

describe('connection limit', () => {
  const connect = (limit: ConnectionLimit, address: string, count = 1): readonly StandIn[] =>
    Array.from({ length: count }, () => {
      const socket = new StandIn(address);
      limit.add(socket as unknown as Socket);
      return socket;
    });
  const ended = (sockets: readonly StandIn[]): number =>
    sockets.filter(({ isEnded }) => isEnded).length;

  it('ends the oldest connection of a network that has too many', () => {
    const limit = new ConnectionLimit({ total: 100, perNetwork: 3 });
    const other = connect(limit, '192.0.2.2');
    const first = connect(limit, '192.0.2.1', 3);
    assert.equal(ended(first), 0);
    const next = connect(limit, '192.0.2.1', 2);
    assert.deepEqual(
      first.map(({ isEnded }) => isEnded),
      [true, true, false],
    );
    assert.equal(ended([...next, ...other]), 0);
  });

  it('ends one of the network with the most if there are too many in all', () => {
    const limit = new ConnectionLimit({ total: 6, perNetwork: 5 });
    const few = connect(limit, '192.0.2.2', 2);
    const many = connect(limit, '192.0.2.1', 4);
    const next = connect(limit, '192.0.2.3');
    assert.equal(many[0]?.isEnded, true);
    assert.equal(ended([...few, ...many, ...next]), 1);
  });

  it('counts a connection no longer once it is closed', () => {
    const limit = new ConnectionLimit({ total: 4, perNetwork: 2 });
    for (let i = 0; i < 10; i += 1) {
      const [socket] = connect(limit, '192.0.2.1');
      socket?.emit('close');
    }
    assert.equal(ended(connect(limit, '192.0.2.1', 2)), 0);
  });
});
