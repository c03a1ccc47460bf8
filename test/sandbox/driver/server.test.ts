import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { afterEach, describe, it } from 'node:test';
import { Controller } from '#src/csi/generated/csi_pb.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { NODE_KEY, nodePool } from '../../../sandbox/driver/pools.ts';
import type { SampleDriverOptions } from '../../../sandbox/driver/server.ts';
import { volumeRequest } from '../../harness/csi-gateway.ts';
import { blockCapability, openDriver, type DriverUnderTest } from '../../harness/sample-driver.ts';
import { until } from '../../harness/until.ts';

const { createVolume, deleteVolume, controllerModifyVolume, createSnapshot } = Controller.method;
const GIB = 1024n ** 3n;

describe('sample driver', () => {
  let d: DriverUnderTest;
  const start = async (options: Partial<SampleDriverOptions> = {}): Promise<void> => {
    d = await openDriver(options);
  };
  afterEach(() => d.close());
  const make = async (name: string, more: object = {}) => {
    const { volume } = await d.ask(createVolume, { ...volumeRequest(name), ...more });
    assert.ok(volume !== undefined);
    return volume;
  };
  const sized = (requiredBytes: bigint) => ({ capacityRange: { requiredBytes } });

  it('creates one volume per name, also after a restart', async () => {
    await start();
    const volume = await make('a', { ...sized(5n * GIB), mutableParameters: { iops: '1' } });
    assert.ok(existsSync(volume.volumeContext['file'] ?? ''));
    await d.restart();
    assert.deepEqual(await make('a', sized(5n * GIB)), volume);
    assert.deepEqual(d.driver.volumes()[0]?.mutableParameters, { iops: '1' });
    const { availableCapacity } = await d.ask(Controller.method.getCapacity, {});
    assert.equal(availableCapacity, 1024n * GIB - 5n * GIB);
  });

  it('refuses a name that exists with another size, access type or source', async () => {
    await start();
    const { volumeId } = await make('a', sized(2n * GIB));
    const volumeContentSource = { type: { case: 'volume' as const, value: { volumeId } } };
    for (const other of [
      sized(3n * GIB),
      { volumeCapabilities: [blockCapability] },
      { volumeContentSource },
    ])
      assert.match(
        await d.refusal(createVolume, { ...volumeRequest('a'), ...other }),
        /^AlreadyExists: volume a exists and is different/,
      );
    await make('a', { capacityRange: { requiredBytes: GIB, limitBytes: 2n * GIB } });
  });

  it('clones a volume and a snapshot with the size of the source', async () => {
    await start();
    const { volumeId } = await make('source', sized(3n * GIB));
    const taken = await d.ask(createSnapshot, { name: 's', sourceVolumeId: volumeId });
    const snapshotId = taken.snapshot?.snapshotId ?? '';
    for (const type of [
      { case: 'volume' as const, value: { volumeId } },
      { case: 'snapshot' as const, value: { snapshotId } },
    ]) {
      const clone = await make(`of a ${type.case}`, { volumeContentSource: { type } });
      assert.equal(clone.capacityBytes, 3n * GIB);
      assert.equal(clone.contentSource?.type.case, type.case);
      assert.match(
        await d.refusal(createVolume, {
          ...volumeRequest('small'),
          ...sized(GIB),
          volumeContentSource: { type },
        }),
        /^OutOfRange/,
      );
    }
  });

  it('deletes a volume, and succeeds for an unknown handle', async () => {
    await start();
    const { volumeId } = await make('a');
    for (const handle of [volumeId, volumeId, '../outside'])
      await d.ask(deleteVolume, { volumeId: handle });
    assert.deepEqual(readdirSync(d.file('data')), []);
  });

  it('answers Aborted while another call works on the same volume', async () => {
    const sleeping: (() => void)[] = [];
    const sleep = () => new Promise<void>((resolve) => sleeping.push(resolve));
    await start({ delayMs: 1, clock: { ...systemClock, sleep } });
    const underWay = async (call: Promise<unknown>): Promise<void> => {
      await until(() => sleeping.length > 0, 'the call is under way');
      assert.match(await d.refusal(createVolume, volumeRequest('a')), /^Aborted/);
      sleeping.pop()?.();
      await call;
    };
    await underWay(d.ask(createVolume, volumeRequest('a')));
    const [volume] = d.driver.volumes();
    await underWay(d.ask(deleteVolume, { volumeId: volume?.handle ?? '' }));
  });

  it('takes the first preferred node with room, then the first requisite one, then none', async () => {
    const names = ['a', 'b', 'c'];
    const onNode = (name: string) => ({ segments: { [NODE_KEY]: name } });
    await start({
      pools: names.map((name) => nodePool({ name, zone: 'z', capacityBytes: 2n * GIB })),
    });
    const accessibilityRequirements = {
      requisite: names.map(onNode),
      preferred: [onNode('b'), onNode('c')],
    };
    const wanted = { ...sized(2n * GIB), accessibilityRequirements };
    for (const [i, node] of ['b', 'c', 'a'].entries()) {
      const { accessibleTopology } = await make(`v${i}`, wanted);
      assert.equal(accessibleTopology[0]?.segments[NODE_KEY], node);
    }
    const { volumeId } = await make('v0', wanted);
    const request = { ...volumeRequest('more'), ...wanted };
    assert.equal(
      await d.refusal(createVolume, request),
      'ResourceExhausted: the emptiest pool that may be used has 0 free bytes, ' +
        '2147483648 are requested',
    );
    await d.ask(deleteVolume, { volumeId });
    await d.ask(createVolume, request);
  });

  it('keeps the mutable parameters that a change does not name, and refuses unknown ones', async () => {
    await start({ mutableParameters: ['iops', 'tier'] });
    const { volumeId } = await make('a', { mutableParameters: { iops: '1', tier: 'fast' } });
    await d.ask(controllerModifyVolume, { volumeId, mutableParameters: { iops: '2' } });
    assert.deepEqual(d.driver.volumes()[0]?.mutableParameters, { iops: '2', tier: 'fast' });
    const colour = { volumeId, mutableParameters: { colour: 'red' } };
    assert.match(await d.refusal(controllerModifyVolume, colour), /^InvalidArgument: .* colour/);
  });
});
