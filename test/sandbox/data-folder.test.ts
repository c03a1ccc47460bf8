import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync } from 'node:fs';
import { readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { UsageError } from '#src/runtime/flags.ts';
import { takeDataFolder } from '../../sandbox/data-folder.ts';

const root = mkdtempSync(join(tmpdir(), 'sutler-data-folder-'));
after(() => rmSync(root, { recursive: true }));

describe('the folder of the sandbox', () => {
  let path = '';
  /** Somebody else's folder, with a file. */
  let other = '';
  let count = 0;
  beforeEach(() => {
    count += 1;
    path = join(root, `data-${count}`);
    other = join(root, `other-${count}`);
    mkdirSync(other, { mode: 0o700 });
    writeFileSync(join(other, 'precious'), 'text');
  });

  it('is made for its owner alone, and taken again without what was left in it', async () => {
    await (
      await takeDataFolder(path)
    )();
    mkdirSync(join(path, 'logs'));
    symlinkSync(other, join(path, 'logs', 'inner'));
    symlinkSync(other, join(path, 'outer'));
    const free = await takeDataFolder(path);
    assert.equal(statSync(path).mode & 0o777, 0o700);
    assert.deepEqual(readdirSync(path).sort(), ['.sutler-sandbox', 'pid']);
    assert.deepEqual(readdirSync(other), ['precious']);
    await free();
  });

  for (const [what, prepare, why] of [
    ['that another process uses', () => takeDataFolder(path), `in use by process ${process.pid}`],
    ['with other contents', () => void (path = other), 'contains other files'],
    ['that is a link', () => symlinkSync(other, path), 'is no folder, or a link'],
    ['that is a file', () => writeFileSync(path, ''), "can't be made"],
    [
      'that others may enter',
      () => {
        mkdirSync(path);
        chmodSync(path, 0o750);
      },
      'is open to other users',
    ],
  ] as const)
    it(`is refused if it is one ${what}`, async () => {
      await prepare();
      await assert.rejects(
        takeDataFolder(path),
        (error) => error instanceof UsageError && error.message.includes(why),
      );
      assert.deepEqual(readdirSync(other), ['precious']);
    });
});
