import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema, GetCapacityResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { Code, createNotSentError } from '#src/csi/status.ts';
import type { CapacityCalls } from '#src/gateway-client/pool.ts';
import { CapacityReadings } from '#src/node-local/capacity-readings.ts';
import { type Choice, chooseNode } from '#src/node-local/choose-node.ts';
import type { NodeLocal } from '#src/node-local/open-node-local.ts';
import { redisReservedCapacity } from '#src/node-local/reserved-capacity.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

/** What a node's driver says: its capacity, nothing ever, or that it can't be reached. */
type Answer = bigint | 'never' | 'unreachable';

const PLACE = { prefix: 'csi', driver: 'd' };

describe('chooseNode', () => {
  let server: TestRedis;
  let asked: string[];
  before(async () => {
    server = await startTestRedis();
  });
  after(() => server.close());
  beforeEach(async () => {
    asked = [];
    await server.redis.flushall();
  });

  /** @returns a function that chooses a node for one claim */
  function chooser(
    answers: Readonly<Record<string, Answer>>,
    onFirst: () => Promise<unknown> = () => Promise.resolve(),
  ) {
    const getCapacity: CapacityCalls['getCapacity'] = async (_, { gateway }) => {
      const node = gateway.replace('node:', '');
      if (asked.push(node) === 1) await onFirst();
      const answer = answers[node] ?? 0n;
      if (answer === 'never') return new Promise(() => undefined);
      if (answer === 'unreachable')
        throw createNotSentError({ method: '/m', code: Code.Unavailable, details: 'down' });
      return create(GetCapacityResponseSchema, { availableCapacity: answer });
    };
    const local: NodeLocal = {
      gateways: { isReady: () => true, readyNodes: () => Object.keys(answers) },
      room: redisReservedCapacity(server.redis, PLACE, 60_000),
      readings: new CapacityReadings({
        csi: { getCapacity },
        timeoutMs: 1_000,
        clock: systemClock,
      }),
      choosesNodes: true,
      random: () => 0,
    };
    return (claimUid: string, requiredBytes: bigint): Promise<Choice> =>
      chooseNode(local, {
        claimUid,
        className: 'class',
        request: toBinary(
          CreateVolumeRequestSchema,
          create(CreateVolumeRequestSchema, { capacityRange: { requiredBytes } }),
        ),
        nodes: Object.keys(answers).map((name) => ({ name, segments: { node: name } })),
        hasCapacity: true,
      });
  }

  it('asks nodes that are too small once, however many claims there are', async () => {
    const choose = chooser({ a: 5n, b: 6n, c: 'unreachable' });
    for (const uid of ['u1', 'u2', 'u3', 'u4'])
      assert.equal((await choose(uid, 10n)).kind, 'full', uid);
    assert.deepEqual(asked.toSorted(), ['a', 'b', 'c']);
  });

  it('asks a node anew that would have room without the volumes under way', async () => {
    const choose = chooser({ a: 10n });
    assert.equal((await choose('u1', 10n)).kind, 'node');
    assert.equal((await choose('u2', 10n)).kind, 'busy');
    assert.deepEqual(asked, ['a', 'a']);
  });

  it('tells the version of before it asked, if room grows while it asks', async () => {
    const names = Array.from({ length: 40 }, (_, i) => `n${i}`);
    const room = redisReservedCapacity(server.redis, PLACE, 60_000);
    const answers = Object.fromEntries(names.map((name) => [name, 5n]));
    const chosen = await chooser(answers, () => room.grown())('u1', 10n);
    assert.equal(asked.length, 40);
    assert.equal(chosen.kind === 'full' && chosen.roomVersion, '0');
  });

  it('does not wait for a node that never answers while another one has room', async () => {
    const choose = chooser({ a: 'never', b: 100n });
    const startMs = performance.now();
    assert.deepEqual(await choose('u1', 10n), { kind: 'node', name: 'b' });
    assert.ok(performance.now() - startMs < 1_000);
  });
});
