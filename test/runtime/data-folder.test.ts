import assert from 'node:assert/strict';
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync } from 'node:fs';
import { readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { type DataFolder, emptyDataFolder, openDataFolder } from '#src/runtime/data-folder.ts';
import { UsageError } from '#src/runtime/flags.ts';

const root = mkdtempSync(join(tmpdir(), 'sutler-data-folder-'));
after(() => rmSync(root, { recursive: true }));

let path = '';
/** Somebody else's folder, with a file. */
let other = '';
let count = 0;
beforeEach(() => {
  count += 1;
  path = join(root, `data-${count}`);
  other = join(root, `other-${count}`);
  mkdirSync(other, { mode: 0o755 });
  writeFileSync(join(other, 'precious'), 'text');
});

const open = (): Promise<DataFolder> => openDataFolder('data-dir', path, 'all');
const modeOf = (file: string): number => statSync(file).mode & 0o777;

async function refused(...parts: readonly string[]): Promise<void> {
  await assert.rejects(open(), (error) => {
    assert.ok(error instanceof UsageError, String(error));
    for (const part of [`--data-dir: ${path}`, ...parts])
      assert.ok(error.message.includes(part), `${part} not in: ${error.message}`);
    return true;
  });
}

/** Makes the data folder as an earlier run left it. */
async function makeEarlier(): Promise<void> {
  await (await open()).close();
}

describe('openDataFolder', () => {
  it('makes a folder that only its owner can read, and takes it again later', async () => {
    await makeEarlier();
    const folder = await open();
    assert.equal(modeOf(path), 0o700);
    assert.deepEqual(readdirSync(path).sort(), ['.sutler-all', 'pid', 'sockets']);
    assert.equal(modeOf(folder.sockets), 0o700);
    await folder.close();
  });

  it('makes an empty folder of this user private', async () => {
    mkdirSync(path, { mode: 0o755 });
    await makeEarlier();
    assert.equal(modeOf(path), 0o700);
  });

  it('refuses a folder with other contents, and leaves it as it is', async () => {
    path = other;
    await refused('contains other files', 'an earlier sutler all made');
    assert.deepEqual(readdirSync(other), ['precious']);
  });

  it('refuses a folder that another process uses', async () => {
    const folder = await open();
    await refused(`in use by process ${process.pid}`);
    await folder.close();
  });

  for (const [target, prepare] of [
    ['a folder', () => mkdirSync(join(other, 'target'))],
    ['nothing', () => undefined],
  ] as const)
    it(`refuses a link to ${target} in place of the folder, and does not follow it`, async () => {
      prepare();
      symlinkSync(join(other, 'target'), path);
      await refused('is a symbolic link', 'remove the link');
      assert.equal(existsSync(join(other, 'target', '.sutler-all')), false);
    });

  it('refuses a file in place of the folder', async () => {
    writeFileSync(path, '');
    await refused("can't be opened as a folder");
  });

  for (const [who, mode] of [
    ['its group', 0o770],
    ['everybody', 0o707],
  ] as const)
    it(`refuses a folder that ${who} may write to, and does not change its mode`, async () => {
      mkdirSync(path);
      chmodSync(path, mode);
      await refused('may be written to by other users', 'chmod go-w');
      assert.equal(modeOf(path), mode);
      assert.deepEqual(readdirSync(path), []);
    });

  it('refuses a folder of another user, and does not change its mode', async () => {
    if (process.geteuid?.() === 0) {
      mkdirSync(path, { mode: 0o755 });
      chownSync(path, 4321, 4321);
    } else path = '/usr';
    const mode = modeOf(path);
    await refused('belongs to user', 'this process runs as user');
    assert.equal(modeOf(path), mode);
  });

  for (const file of ['.sutler-all', 'pid'])
    it(`refuses a link in place of ${file}, and leaves alone what it leads to`, async () => {
      await makeEarlier();
      rmSync(join(path, file), { force: true });
      symlinkSync(join(other, 'precious'), join(path, file));
      await refused(`its file ${file} is a symbolic link`);
      assert.equal(readFileSync(join(other, 'precious'), 'utf8'), 'text');
    });

  it('does not follow a link in place of the folder of sockets', async () => {
    await makeEarlier();
    symlinkSync(other, join(path, 'sockets'));
    const folder = await open();
    writeFileSync(join(folder.sockets, 'gateway.sock'), '');
    await folder.close();
    assert.deepEqual(readdirSync(other), ['precious']);
  });
});

describe('emptyDataFolder', () => {
  it('removes files, folders and links, and nothing outside of the folder', async () => {
    const folder = await open();
    mkdirSync(join(path, 'redis'));
    symlinkSync(other, join(path, 'redis', 'inner'));
    symlinkSync(other, join(path, 'outer'));
    symlinkSync(join(other, 'precious'), join(path, 'file'));
    await emptyDataFolder(folder);
    assert.deepEqual(readdirSync(path).sort(), ['.sutler-all', 'pid', 'sockets']);
    assert.deepEqual(readdirSync(other), ['precious']);
    await folder.close();
  });
});
