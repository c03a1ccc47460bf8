import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { CREATE, healthCheck } from '../harness/attacks/bodies.ts';
import { stayHalfway, staySilent } from '../harness/attacks/connections.ts';
import {
  connectCaller,
  openVisitedDoor,
  type VisitedDoor,
} from '../harness/attacks/one-stranger.ts';
import { Stranger } from '../harness/attacks/stranger.ts';
import { emptyCall } from '../harness/csi-frames.ts';
import { volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

/** More connections than the gateway keeps. */
const CALLING = 300;
/** More connections than the gateway accepts. */
const SILENT = 1_100;
const AT_ONCE = 50;
const SETTINGS = { timeoutMs: 10_000 };

describe('connections of a stranger', () => {
  let visited: VisitedDoor | undefined;
  const end = { attack: new AbortController() };
  afterEach(async () => {
    end.attack.abort();
    end.attack = new AbortController();
    await visited?.close();
    visited = undefined;
  });

  it('that each made one call replace none of an allowed caller', async () => {
    const { door, stranger } = (visited = await openVisitedDoor('tls'));
    const caller = new Stranger({
      target: { ...door.target, tls: door.callerTls },
      localAddress: undefined,
      maxSockets: 1,
      signal: end.attack.signal,
    });
    const allowed = await caller.open();
    const first = allowed.newStream();
    await allowed.send(emptyCall(first, CREATE));
    assert.equal((await allowed.ended(first)).by, 'answer');
    const made = { calls: 0, tries: 0 };
    const callOnce = async (): Promise<void> => {
      made.tries += 1;
      const connection = await stranger.open();
      const stream = connection.newStream();
      await connection.send(healthCheck(stream));
      await connection.ended(stream);
      made.calls += 1;
    };
    while (made.calls < CALLING && made.tries < 4 * CALLING && !allowed.isClosed)
      await Promise.allSettled(Array.from({ length: AT_ONCE }, callOnce));
    assert.equal(allowed.isClosed, false);
    const second = allowed.newStream();
    await allowed.send(emptyCall(second, CREATE));
    assert.equal((await allowed.ended(second)).by, 'answer');
  });

  for (const [what, attack] of [
    ['that say nothing', staySilent],
    ['that say half of what they must', stayHalfway],
  ] as const)
    it(`${what} keep no allowed caller out`, async () => {
      const { door } = (visited = await openVisitedDoor('tls'));
      const stranger = new Stranger({
        target: door.target,
        localAddress: '127.0.0.2',
        maxSockets: SILENT,
        signal: end.attack.signal,
      });
      void stranger.attack(attack);
      await until(() => stranger.settled >= SILENT, 'the stranger has connected');
      const caller = connectCaller(door);
      const call = caller.createVolume(volumeRequest('new'), SETTINGS);
      const failure = await call.then(() => '', String);
      caller.close();
      assert.equal(failure, '');
    });
});
