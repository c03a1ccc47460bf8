import assert from 'node:assert/strict';
import { after, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  CREATE,
  FLOODED_REQUESTS,
  HEALTH_CHECK,
  healthCheck,
  healthRequest,
} from '../harness/attacks/bodies.ts';
import type { DoorKind } from '../harness/attacks/door.ts';
import { openVisitedDoor, type VisitedDoor } from '../harness/attacks/one-stranger.ts';
import type { RawConnection } from '../harness/attacks/raw-connection.ts';
import { grpcHeaders, headersFrame, ResetCode, resetFrame } from '../harness/csi-frames.ts';
import { volumeRequest } from '../harness/csi-gateway.ts';

const MIB = 1024 * 1024;
/** A stranger of a TLS listener is cut off before HTTP/2 begins. */
const KINDS: readonly DoorKind[] = ['plaintext'];
const SETTINGS = { timeoutMs: 30_000 };
const SHORT_ANSWER_BYTES = 4 * 1024;
/** What one request may bring in one flow-control window, with one byte in each. */
const TINY_FRAMES = 1_000_000;
const FLOOD_MS = 3_000;
const MOST_GROWTH_BYTES = 32 * MIB;

/** Starts a call without a body.
 * @returns its stream */
async function startCall(connection: RawConnection, path: string): Promise<number> {
  const stream = connection.newStream();
  await connection.send(headersFrame(stream, grpcHeaders(path)));
  return stream;
}

/** Waits until the gateway has read all that was sent so far. */
async function waitUntilRead(connection: RawConnection): Promise<void> {
  const stream = connection.newStream();
  await connection.send(healthCheck(stream)).catch(() => undefined);
  await connection.ended(stream);
}

for (const kind of KINDS)
  describe(`a gateway whose door is ${kind}, and a stranger`, () => {
    let visited: VisitedDoor | undefined;
    const use = (): VisitedDoor => visited ?? assert.fail('there is no gateway');

    beforeEach(async () => {
      if (visited?.door.gateway.hasEnded === false) return;
      await visited?.close();
      visited = await openVisitedDoor(kind);
    });
    after(() => visited?.close());

    const assertServed = async (): Promise<void> => {
      await use().caller.createVolume(volumeRequest('afterwards'), SETTINGS);
      assert.equal(use().door.gateway.ending, '');
    };

    it('outlives a health check that is reset before its body', async () => {
      const connection = await use().stranger.open();
      const stream = await startCall(connection, HEALTH_CHECK);
      await connection.send(resetFrame(stream, ResetCode.none));
      await waitUntilRead(connection);
      await assertServed();
    });

    for (const mib of [1, 8])
      it(`answers a health check of ${mib} MiB in less than 4 KiB`, async () => {
        const connection = await use().stranger.open();
        const stream = await startCall(connection, HEALTH_CHECK);
        const body = healthRequest('é'.repeat((mib * MIB) / 2));
        // The gateway does not read all of it, so sending may never end.
        connection
          .sendBody(stream, body)
          .then(() => connection.endBody(stream))
          .catch(() => undefined);
        const { headerBytes } = await connection.ended(stream);
        connection.destroy();
        assert.ok(headerBytes < SHORT_ANSWER_BYTES, `${headerBytes} bytes`);
        await assertServed();
      });

    for (const [what, headers] of Object.entries(FLOODED_REQUESTS))
      it(`holds little memory for a million tiny frames of ${what}`, async () => {
        const connection = await use().stranger.open();
        const { gateway } = use().door;
        const beforeBytes = await gateway.stableRss();
        const stream = connection.newStream();
        await connection.send(headersFrame(stream, headers));
        const frames = { count: TINY_FRAMES, bytes: 1 };
        const isRead = connection
          .sendFrames(stream, frames)
          .then(() => waitUntilRead(connection))
          .catch(() => undefined);
        // A gateway that reads slowly has read as much as it can hold long before.
        await Promise.race([isRead, delay(FLOOD_MS)]);
        const growth = (await gateway.rss()) - beforeBytes;
        connection.destroy();
        assert.ok(growth < MOST_GROWTH_BYTES, `${growth} bytes`);
        await assertServed();
      });

    it('ends the connection whose unfinished messages hold most, and no other', async () => {
      const [large, small] = [await use().stranger.open(), await use().stranger.open()];
      const partOf = (bytes: number): Buffer => {
        const part = Buffer.alloc(bytes);
        part.writeUInt32BE(bytes, 1);
        return part;
      };
      const begun = await startCall(small, CREATE);
      await small.sendBody(begun, partOf(MIB));
      const parts = Array.from({ length: 8 }, async () =>
        large.sendBody(await startCall(large, CREATE), partOf(8 * MIB)),
      );
      const outcomes = await Promise.allSettled(parts);
      assert.ok(outcomes.some(({ status }) => status === 'rejected'));
      await waitUntilRead(small);
      assert.equal(small.isClosed, false);
      small.destroy();
      await assertServed();
    });

    it('ends a connection that sends two messages in one request', async () => {
      const connection = await use().stranger.open();
      const stream = await startCall(connection, CREATE);
      const twoEmptyMessages = Buffer.alloc(10);
      await connection.sendBody(stream, twoEmptyMessages);
      await connection.closed();
      await assertServed();
    });

    it('resets a request whose deadline passes before its end', async () => {
      const connection = await use().stranger.open();
      const stream = connection.newStream();
      const headers = { ...grpcHeaders(CREATE), 'grpc-timeout': '1m' };
      await connection.send(headersFrame(stream, headers));
      await connection.wasReset(stream);
      connection.destroy();
    });
  });
