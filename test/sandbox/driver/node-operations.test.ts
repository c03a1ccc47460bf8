import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { Controller, Node } from '#src/csi/generated/csi_pb.ts';
import { volumeRequest } from '../../harness/csi-gateway.ts';
import { blockCapability, openDriver, type DriverUnderTest } from '../../harness/sample-driver.ts';

const { nodePublishVolume, nodeUnpublishVolume } = Node.method;
const [volumeCapability] = volumeRequest('a').volumeCapabilities;

describe('publishing a volume of the sample driver', () => {
  let d: DriverUnderTest;
  let volumeId: string;
  let directory: string;
  let targetPath: string;
  beforeEach(async () => {
    d = await openDriver();
    const { volume } = await d.ask(Controller.method.createVolume, volumeRequest('a'));
    volumeId = volume?.volumeId ?? '';
    directory = volume?.volumeContext['directory'] ?? '';
    targetPath = d.file('target');
  });
  afterEach(() => d.close());
  const publish = () =>
    d.ask(nodePublishVolume, {
      volumeId,
      targetPath,
      ...(volumeCapability === undefined ? {} : { volumeCapability }),
    });

  it('links the volume at the target path, and unlinks it; both repeatable', async () => {
    for (let again = 0; again < 2; again += 1) await publish();
    writeFileSync(join(targetPath, 'hello'), 'world');
    assert.equal(readFileSync(join(directory, 'hello'), 'utf8'), 'world');
    for (let again = 0; again < 2; again += 1)
      await d.ask(nodeUnpublishVolume, { volumeId, targetPath });
    assert.equal(existsSync(targetPath), false);
    assert.ok(existsSync(join(directory, 'hello')));
  });

  it('keeps anything else that is at the target path', async () => {
    mkdirSync(targetPath);
    await assert.rejects(publish(), /Internal.*EEXIST/);
    await d.ask(nodeUnpublishVolume, { volumeId, targetPath });
    assert.ok(existsSync(targetPath));
  });

  it('is refused with a missing or wrong volume, target or capability', async () => {
    for (const [request, expected] of [
      [{ targetPath }, /^InvalidArgument: no volume id/],
      [{ volumeId }, /^InvalidArgument: no target path/],
      [{ volumeId, targetPath }, /^InvalidArgument: no volume capability/],
      [{ volumeId: 'vol-x', targetPath, volumeCapability: blockCapability }, /^NotFound/],
      [
        { volumeId, targetPath, volumeCapability: blockCapability },
        /^InvalidArgument: .* is a mount volume/,
      ],
    ] as const)
      assert.match(await d.refusal(nodePublishVolume, request), expected);
    assert.match(await d.refusal(nodeUnpublishVolume, { targetPath }), /^InvalidArgument/);
    assert.match(await d.refusal(nodeUnpublishVolume, { volumeId }), /^InvalidArgument/);
  });
});
