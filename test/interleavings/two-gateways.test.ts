import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import type { Gateway } from '#src/csi-gateway/gateway.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { Pause, Story } from './story.ts';
import { until } from '../harness/until.ts';

/** During a rolling update of a driver its old and its new gateway run at the same time, each with
 * a single flight of its own. Only BullMQ's lock keeps their calls apart. */
describe('two gateways at one driver', () => {
  let story: Story;
  let gateways: readonly { readonly gateway: Gateway; readonly client: CsiClient }[] = [];
  let serial = 0;
  before(async () => {
    story = await Story.open();
  });
  after(async () => {
    await closeAll();
    await story.close();
  });
  beforeEach(async () => {
    await closeAll();
    await story.reset();
    gateways = [await open(), await open()];
  });

  async function open(): Promise<{ gateway: Gateway; client: CsiClient }> {
    serial += 1;
    const folder = { file: (name: string): string => join(story.rig.dir, name) };
    const opened = await startTestGateway(folder, {
      listen: { kind: 'unix', path: folder.file(`gateway-${serial}.sock`) },
    });
    await until(() => opened.gateway.trouble === undefined, 'the gateway is ready');
    return opened;
  }
  async function closeAll(): Promise<void> {
    for (const { gateway, client } of gateways) {
      client.close();
      await gateway.close(0);
    }
  }
  const workerAt = (index: number) => {
    const at = gateways[index];
    assert.ok(at);
    return { ...at, worker: story.worker({ csi: at.client }) };
  };

  it('make one volume when the old one is killed during a call', async () => {
    const claim = await story.rig.claim();
    const [old, newer] = [workerAt(0), workerAt(1)];
    const pause = new Pause();
    let isWorking = false;
    story.script(async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      if (isWorking)
        throw new DriverStatus(Code.Aborted, 'an operation on this volume is under way');
      isWorking = true;
      await pause.wait();
      isWorking = false;
      return proceed();
    });
    const run = old.worker.reconcileClaim(claim);
    await pause.reached;
    await old.gateway.close(0);
    assert.equal((await run).kind, 'retry');
    assert.equal((await newer.worker.reconcileClaim(claim)).kind, 'running');
    assert.ok(((await story.rig.doubtMs(claim)) ?? 0) > 0);
    pause.resume();
    await story.runUntilDone(claim, newer.worker);
    await story.assertOneVolume(claim);
  });

  it('hand over: the old one ends its call, and the new one gets the next', async () => {
    const [slow, next] = [await story.rig.claim(), await story.rig.claim()];
    const [old, newer] = [workerAt(0), workerAt(1)];
    const pause = new Pause();
    story.script(({ method }) =>
      method === 'CreateVolume' && story.creates(next).length === 0 ? pause.wait() : undefined,
    );
    const run = old.worker.reconcileClaim(slow);
    await pause.reached;
    const drained = old.gateway.close(5_000);
    const refused = await old.worker.reconcileClaim(next);
    assert.ok(refused.kind === 'later', JSON.stringify(refused));
    assert.equal(await story.rig.doubtMs(next), undefined);
    assert.equal((await newer.worker.reconcileClaim(next)).kind, 'done');
    pause.resume();
    assert.equal((await run).kind, 'done');
    await drained;
    await story.assertOneVolume(slow);
    await story.assertOneVolume(next);
    assert.equal(story.creates(next).length, 1);
  });
});
