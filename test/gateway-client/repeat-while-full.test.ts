import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { CreateVolumeResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { Code, CsiError } from '#src/csi/status.ts';
import { type ControllerCallSettings, repeatWhileFull } from '#src/gateway-client/pool.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { failureOf } from '../harness/csi-gateway.ts';

const METHOD = '/csi.v1.Controller/CreateVolume';

function refusal(isGatewayFull: boolean): CsiError {
  const status = { code: Code.Unavailable, details: 'no room', method: METHOD };
  return new CsiError({ ...status, notForwarded: true, isGatewayFull });
}

/** A CreateVolume on a clock that only sleeping and calls move.
 * @param o.fullFor  calls that the gateway refuses
 * @param o.callMs   how long each of them takes */
function createVolume(o: {
  readonly fullFor: number;
  readonly callMs?: number;
  readonly error?: CsiError;
  readonly settings?: Partial<ControllerCallSettings>;
}): { readonly result: Promise<unknown>; readonly startedMs: number[] } {
  let nowMs = 1_000;
  const clock = {
    nowMs: () => nowMs,
    sleep: (ms: number) => Promise.resolve(void (nowMs += ms)),
  };
  const startedMs: number[] = [];
  const calls = repeatWhileFull(
    {
      createVolume: () => {
        startedMs.push(nowMs);
        nowMs += o.callMs ?? 1;
        return startedMs.length <= o.fullFor
          ? Promise.reject(o.error ?? refusal(true))
          : Promise.resolve(create(CreateVolumeResponseSchema));
      },
      deleteVolume: () => Promise.reject(new Error('not called')),
    },
    { clock, random: () => 0.5 },
  );
  const settings = { timeoutMs: 10_000, gateway: '', notAfterMs: 31_000, ...o.settings };
  return { result: calls.createVolume(new Uint8Array(), settings), startedMs };
}

describe('repeatWhileFull', () => {
  it('sends a call again until the gateway has room for it', async () => {
    const { result, startedMs } = createVolume({ fullFor: 3 });
    await result;
    assert.deepEqual(startedMs, [1_000, 1_500, 2_000, 2_500]);
  });

  it('does not pause after a gateway that let the call wait', async () => {
    const { result, startedMs } = createVolume({ fullFor: 2, callMs: 1_000 });
    await result;
    assert.deepEqual(startedMs, [1_000, 2_000, 3_000]);
  });

  it('ends with the gateway’s answer when the next attempt would come too late', async () => {
    const { result, startedMs } = createVolume({ fullFor: 100, callMs: 1_000 });
    const error = await failureOf(result);
    assert.equal(error.isGatewayFull, true);
    assert.equal(startedMs.at(-1), 30_000);
  });

  it('sends a call without a latest time once', async () => {
    const settings = { notAfterMs: undefined } as never;
    const { result, startedMs } = createVolume({ fullFor: 1, settings });
    await failureOf(result);
    assert.equal(startedMs.length, 1);
  });

  it('sends no call again after the run may start none', async () => {
    const stopping = AbortSignal.abort();
    const { result, startedMs } = createVolume({ fullFor: 1, settings: { stopping } });
    await failureOf(result);
    assert.equal(startedMs.length, 1);
  });

  it('ends a pause when the run may start no more calls', async () => {
    const stop = new AbortController();
    const calls = repeatWhileFull(
      {
        createVolume: () => Promise.reject(refusal(true)),
        deleteVolume: () => Promise.reject(refusal(true)),
      },
      { clock: systemClock, random: () => 1 },
    );
    const settings = { timeoutMs: 10_000, gateway: '', notAfterMs: Infinity };
    const failure = failureOf(
      calls.deleteVolume({ volumeId: 'x' }, { ...settings, stopping: stop.signal }),
    );
    stop.abort();
    assert.equal((await failure).isGatewayFull, true);
  });

  it('repeats no call that failed for another reason', async () => {
    const { result, startedMs } = createVolume({ fullFor: 1, error: refusal(false) });
    assert.equal((await failureOf(result)).isGatewayFull, false);
    assert.equal(startedMs.length, 1);
  });
});
