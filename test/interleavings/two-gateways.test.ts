import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import type { Gateway } from '#src/csi-gateway/gateway.ts';
import type { Volume } from '#src/kube/objects.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { until } from '../harness/csi-folder.ts';
import { startTestGateway } from '../harness/csi-gateway.ts';
import { Ice, Story } from './story.ts';

/** While a driver is rolled, its old and its new gateway live side by side, each with a single
 * flight of its own: what keeps calls apart is the record. */
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
    await until('the gateway is ready', () => opened.gateway.trouble === undefined);
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
    return { ...at, worker: story.worker({ ports: { csi: at.client } }) };
  };

  it('never have a creation of one volume at the same time', async () => {
    const claim = await story.rig.claim();
    const [old, young] = [workerAt(0), workerAt(1)];
    const ice = new Ice();
    story.script(({ method }) => (method === 'CreateVolume' ? ice.freeze() : undefined));
    const run = old.worker.provision(claim);
    await ice.reached;
    for (let tries = 0; tries < 5; tries += 1)
      assert.equal((await young.worker.provision(claim)).kind, 'running');
    ice.thaw();
    assert.equal((await run).kind, 'done');
    assert.equal((await young.worker.provision(claim)).kind, 'done');
    await story.assertOneVolume(claim);
    assert.equal(story.creates(claim).length, 1);
    assert.deepEqual(story.doubles, []);
  });

  it('never have creation and deletion of one volume at the same time', async () => {
    const claim = await story.rig.claim();
    const [old, young] = [workerAt(0), workerAt(1)];
    await story.settle(claim, old.worker);
    await story.deleteClaim(claim);
    await until(
      'the volume is released',
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
    );
    const volume = (await story.rig.volumeOf(claim)) as Volume;
    const ice = new Ice();
    story.script(({ method }) => (method === 'DeleteVolume' ? ice.freeze() : undefined));
    const run = old.worker.remove(volume);
    await ice.reached;
    assert.equal((await young.worker.remove(volume)).kind, 'running');
    assert.equal((await young.worker.provision(claim)).kind, 'running');
    ice.thaw();
    assert.equal((await run).kind, 'done');
    await story.settle(claim, young.worker);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('hand over: what the old one had under way when it was killed is finished through the new one, with one volume', async () => {
    const claim = await story.rig.claim();
    const [old, young] = [workerAt(0), workerAt(1)];
    const ice = new Ice();
    let isWorking = false;
    story.script(async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      if (isWorking)
        throw new DriverStatus(Code.Aborted, 'an operation on this volume is under way');
      isWorking = true;
      await ice.freeze();
      isWorking = false;
      return proceed();
    });
    const run = old.worker.provision(claim);
    await ice.reached;
    await old.gateway.close(0);
    assert.equal((await run).kind, 'retry');
    assert.equal((await young.worker.provision(claim)).kind, 'running');
    assert.equal((await story.record(claim))['amb'], '1');
    ice.thaw();
    await story.settle(claim, young.worker);
    await story.assertOneVolume(claim);
  });

  it('hand over: one that drains lets its call end, sends nothing new, and the new one goes on', async () => {
    const [slow, next] = [await story.rig.claim(), await story.rig.claim()];
    const [old, young] = [workerAt(0), workerAt(1)];
    const ice = new Ice();
    story.script(({ method }) =>
      method === 'CreateVolume' && story.creates(next).length === 0 ? ice.freeze() : undefined,
    );
    const run = old.worker.provision(slow);
    await ice.reached;
    const drained = old.gateway.close(5_000);
    const refused = await old.worker.provision(next);
    assert.ok(refused.kind === 'later', JSON.stringify(refused));
    assert.deepEqual(await story.record(next), {});
    assert.equal((await young.worker.provision(next)).kind, 'done');
    ice.thaw();
    assert.equal((await run).kind, 'done');
    await drained;
    await story.assertOneVolume(slow);
    await story.assertOneVolume(next);
    assert.equal(story.creates(next).length, 1);
  });
});
