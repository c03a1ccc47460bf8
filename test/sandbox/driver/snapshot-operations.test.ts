import assert from 'node:assert/strict';
import { mkdirSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Controller, type Snapshot } from '#src/csi/generated/csi_pb.ts';
import { volumeRequest } from '../../harness/csi-gateway.ts';
import { openDriver, type DriverUnderTest } from '../../harness/sample-driver.ts';

const { createVolume, deleteVolume, createSnapshot, deleteSnapshot, listSnapshots } =
  Controller.method;
const MIB = 1024n ** 2n;

describe('snapshots of the sample driver', () => {
  let d: DriverUnderTest;
  const volume = async (name: string): Promise<string> => {
    const made = await d.ask(createVolume, {
      ...volumeRequest(name),
      capacityRange: { requiredBytes: 2n * MIB },
    });
    return made.volume?.volumeId ?? '';
  };
  const take = async (name: string, sourceVolumeId: string): Promise<Snapshot> => {
    const { snapshot } = await d.ask(createSnapshot, { name, sourceVolumeId });
    assert.ok(snapshot !== undefined);
    return snapshot;
  };
  const list = async (
    request: { snapshotId?: string; sourceVolumeId?: string } = {},
  ): Promise<(string | undefined)[]> =>
    (await d.ask(listSnapshots, request)).entries.map(({ snapshot }) => snapshot?.snapshotId);
  beforeEach(
    async () =>
      (d = await openDriver({
        clock: { nowMs: () => 1_700_000_000_123, sleep: () => Promise.resolve() },
      })),
  );
  afterEach(() => d.close());

  it('report volume, size, creation time and that they are ready', async () => {
    const sourceVolumeId = await volume('v');
    const snapshot = await take('s', sourceVolumeId);
    assert.deepEqual(
      [
        snapshot.sourceVolumeId,
        snapshot.sizeBytes,
        snapshot.creationTime && timestampMs(snapshot.creationTime),
        snapshot.readyToUse,
      ],
      [sourceVolumeId, 2n * MIB, 1_700_000_000_123, true],
    );
  });

  it('are created once per name, also after a restart', async () => {
    const sourceVolumeId = await volume('v');
    const snapshot = await take('s', sourceVolumeId);
    await d.restart();
    assert.deepEqual(await take('s', sourceVolumeId), snapshot);
    assert.deepEqual(
      d.driver.snapshots().map(({ name }) => name),
      ['s'],
    );
  });

  it('are returned again after their volume was deleted', async () => {
    const sourceVolumeId = await volume('v');
    const snapshot = await take('s', sourceVolumeId);
    await d.ask(deleteVolume, { volumeId: sourceVolumeId });
    assert.deepEqual(await take('s', sourceVolumeId), snapshot);
  });

  it('are refused if the name exists for another volume', async () => {
    const first = await volume('v');
    await take('s', first);
    assert.equal(
      await d.refusal(createSnapshot, { name: 's', sourceVolumeId: await volume('w') }),
      `AlreadyExists: snapshot s exists, but it is of volume ${first}`,
    );
  });

  it('are refused without name or volume, and for an unknown volume', async () => {
    assert.equal(
      await d.refusal(createSnapshot, { name: 's', sourceVolumeId: 'vol-x' }),
      'NotFound: cannot create a snapshot: there is no volume vol-x',
    );
    assert.match(
      await d.refusal(createSnapshot, { sourceVolumeId: 'vol-x' }),
      /^InvalidArgument: no snapshot name/,
    );
    assert.match(
      await d.refusal(createSnapshot, { name: 's' }),
      /^InvalidArgument: no source volume/,
    );
    assert.match(await d.refusal(deleteSnapshot, {}), /^InvalidArgument: no snapshot id/);
  });

  it('can be deleted twice', async () => {
    const { snapshotId } = await take('s', await volume('v'));
    const directory = join(d.file('data'), snapshotId);
    assert.ok(existsSync(directory));
    for (let again = 0; again < 2; again += 1) await d.ask(deleteSnapshot, { snapshotId });
    assert.deepEqual([d.driver.snapshots(), existsSync(directory)], [[], false]);
  });

  it('are removed by a restart if they are incomplete', async () => {
    await volume('v');
    mkdirSync(join(d.file('data'), 'snap-half-made'));
    await d.restart();
    assert.equal(existsSync(join(d.file('data'), 'snap-half-made')), false);
    assert.equal(d.driver.volumes().length, 1);
  });

  it('are listed by volume and by handle', async () => {
    const [v, w] = [await volume('v'), await volume('w')];
    const [first, second] = [await take('s', v), await take('t', w)];
    assert.deepEqual(await list({ sourceVolumeId: v }), [first.snapshotId]);
    assert.deepEqual(await list({ snapshotId: second.snapshotId }), [second.snapshotId]);
    assert.deepEqual(await list({ snapshotId: 'snap-x' }), []);
    assert.deepEqual(await list({ sourceVolumeId: 'vol-x' }), []);
    assert.equal((await list()).length, 2);
  });

  it('are each listed once over several pages', async () => {
    const v = await volume('v');
    for (let i = 0; i < 5; i += 1) await take(`s${i}`, v);
    const seen: (string | undefined)[] = [];
    let startingToken = '';
    do {
      const page = await d.ask(listSnapshots, { maxEntries: 2, startingToken });
      assert.ok(page.entries.length <= 2);
      seen.push(...page.entries.map(({ snapshot }) => snapshot?.snapshotId));
      startingToken = page.nextToken;
    } while (startingToken !== '');
    assert.equal(new Set(seen).size, 5);
    assert.match(await d.refusal(listSnapshots, { startingToken: 'vol-junk' }), /^Aborted/);
    assert.match(await d.refusal(listSnapshots, { maxEntries: -1 }), /^InvalidArgument/);
  });

  it('require the secret of the class for creation and deletion', async () => {
    const request = {
      name: 's',
      sourceVolumeId: await volume('v'),
      parameters: { requireSecret: 'token' },
    };
    assert.match(await d.refusal(createSnapshot, request), /^InvalidArgument: .* token/);
    const { snapshot } = await d.ask(createSnapshot, { ...request, secrets: { token: 'x' } });
    const snapshotId = snapshot?.snapshotId ?? '';
    assert.match(await d.refusal(deleteSnapshot, { snapshotId }), /^InvalidArgument: .* token/);
    await d.ask(deleteSnapshot, { snapshotId, secrets: { token: 'x' } });
  });
});
