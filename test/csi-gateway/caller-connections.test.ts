import assert from 'node:assert/strict';
import type { X509Certificate } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { CallerConnections } from '#src/csi-gateway/caller-connections.ts';
import { ConnectionReaper, defaultReaperLimits } from '#src/csi-gateway/connection-reaper.ts';
import type { Caller } from '#src/csi-gateway/identify-caller.ts';
import { createGatewayMetrics } from '#src/csi-gateway/metrics.ts';
import { Code } from '#src/csi/status.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';

const CERTIFICATE = {} as X509Certificate;

/** A connection as CallerConnections knows it: real ones can't come from many networks here. Like
 * a real one it closes only a while after it was destroyed. */
class Session extends EventEmitter {
  destroyed = false;
  setLocalWindowSize(): void {}
  destroy(): void {
    this.destroyed = true;
    setImmediate(() => this.emit('close'));
  }
}

describe('CallerConnections', () => {
  let nowMs = 0;
  let reaper: ConnectionReaper;
  let connections: CallerConnections;
  beforeEach(() => {
    const clock = { ...systemClock, nowMs: () => (nowMs += 1) };
    reaper = new ConnectionReaper({
      limits: defaultReaperLimits,
      clock,
      onLateCall: () => undefined,
      onTooManyCalls: () => undefined,
    });
    const metrics = createGatewayMetrics(new Registry());
    connections = new CallerConnections({ reaper, metrics, clock, log: silentLog });
  });
  afterEach(() => reaper.close());

  const add = (caller: Partial<Caller>, remoteAddress: string): Session => {
    const session = new Session();
    const socket = { remoteAddress, destroy: () => undefined } as unknown as Socket;
    connections.add(session as unknown as ServerHttp2Session, {
      socket,
      caller: {
        name: 'DNS:sutler-jobs',
        refusal: undefined,
        certificate: CERTIFICATE,
        notAfterMs: Infinity,
        ...caller,
      },
      onProven: () => undefined,
    });
    return session;
  };
  const addAllowed = (address: string, name = 'DNS:sutler-jobs'): Session => add({ name }, address);
  const addRefused = (address: string): Session =>
    add({ name: 'stranger', refusal: { code: Code.PermissionDenied, details: '' } }, address);
  const addMany = (count: number, open: (index: number) => Session): readonly Session[] =>
    Array.from({ length: count }, (_, index) => open(index));
  const open = (sessions: readonly Session[]): number =>
    sessions.filter(({ destroyed }) => !destroyed).length;
  const openCall = (session: Session): ServerHttp2Stream => {
    const stream = Object.assign(new EventEmitter(), { session }) as unknown as ServerHttp2Stream;
    reaper.addCall(stream, Infinity);
    return stream;
  };

  it('keeps sixteen connections of callers that may not call, the newest', () => {
    const refused = addMany(300, (index) => addRefused(`10.0.0.${index % 250}`));
    assert.equal(open(refused), 16);
    assert.equal(open(refused.slice(-16)), 16);
  });

  it('ends no connection of a caller that may call for callers that may not', () => {
    const allowed = addMany(256, (index) => addAllowed(`10.1.${index}.1`, `DNS:n${index % 2}`));
    addMany(300, (index) => addRefused(`10.0.0.${index % 250}`));
    assert.equal(open(allowed), 256);
  });

  it('ends a connection of a caller that may not call for one that may', () => {
    const refused = addMany(16, (index) => addRefused(`10.0.0.${index}`));
    const allowed = addMany(256, (index) => addAllowed(`10.1.${index}.1`, `DNS:n${index % 2}`));
    assert.equal(open(refused), 0);
    assert.equal(open(allowed), 256);
  });

  it('keeps 192 connections of one name, and room for the other names', () => {
    const jobs = addMany(300, (index) => addAllowed(`10.1.${index % 200}.${index}`));
    assert.equal(open(jobs), 192);
    const ingest = addMany(10, (index) => addAllowed(`10.2.${index}.1`, 'DNS:sutler-ingest'));
    assert.equal(open(ingest), 10);
    assert.equal(open(jobs), 192);
  });

  it('keeps 64 connections of one network', () => {
    const near = addMany(100, () => addAllowed('10.1.1.1'));
    assert.equal(open(near), 64);
  });

  it('does not count the callers of this machine as one network', () => {
    assert.equal(open(addMany(100, () => addAllowed('127.0.0.1'))), 100);
  });

  it('ends a connection that was never served before one that was', () => {
    const served = addAllowed('10.1.1.1');
    reaper.prove(openCall(served));
    addMany(100, () => addAllowed('10.1.1.1'));
    assert.equal(served.destroyed, false);
  });

  it('ends a connection whose only call was never answered for a new one', () => {
    const halfOpen = addMany(64, () => addAllowed('10.1.1.1'));
    for (const session of halfOpen) openCall(session);
    reaper.enterPhase(openCall(halfOpen[0] ?? assert.fail()), 'work');
    const next = addAllowed('10.1.1.1');
    assert.equal(next.destroyed, false);
    assert.equal(open(halfOpen), 63);
    assert.equal(halfOpen[0]?.destroyed, false);
  });

  it('keeps 64 plaintext connections whose calls the driver never answered, the newest', () => {
    const served = add({ certificate: undefined }, '127.0.0.1');
    reaper.prove(openCall(served));
    const unserved = addMany(100, () => add({ certificate: undefined }, '127.0.0.1'));
    assert.equal(open(unserved), 64);
    assert.equal(open(unserved.slice(-64)), 64);
    assert.equal(served.destroyed, false);
  });

  it('ends an old connection with a call rather than a new one that had no time for one', () => {
    const flooding = addMany(63, () => addAllowed('10.1.1.1'));
    for (const session of flooding) openCall(session);
    const next = addAllowed('10.1.1.1');
    addAllowed('10.1.1.1');
    assert.equal(next.destroyed, false);
    assert.equal(open(flooding), 62);
  });

  it('ends no connection whose call is at the driver', () => {
    const busy = addMany(64, () => addAllowed('10.1.1.1'));
    for (const session of busy) reaper.enterPhase(openCall(session), 'work');
    assert.equal(addAllowed('10.1.1.1').destroyed, true);
    assert.equal(open(busy), 64);
  });

  it('ends no connection with a call of a caller that was served, but the new one', () => {
    const busy = addMany(64, () => addAllowed('10.1.1.1'));
    for (const session of busy) reaper.prove(openCall(session));
    const next = addAllowed('10.1.1.1');
    assert.equal(next.destroyed, true);
    assert.equal(open(busy), 64);
  });
});
