import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { findOwnSutler, writeOwnSutler } from '#src/runtime/own-folder.ts';

const place = mkdtempSync(join(tmpdir(), 'own-folder-'));
after(() => rmSync(place, { recursive: true }));

describe('findOwnSutler', () => {
  it('does not trust a folder in which others may write', async () => {
    await addFolder('sutler-000001', 0o700, 'redis://own');
    await addFolder('sutler-000002', 0o777, 'redis://planted');
    const found = await findOwnSutler({ TMPDIR: place });
    assert.equal(found?.redis, 'redis://own');
  });
});

async function addFolder(name: string, mode: number, redis: string): Promise<void> {
  const folder = join(place, name);
  mkdirSync(folder);
  await writeOwnSutler(folder, { pid: process.pid, redis, given: {} });
  chmodSync(folder, mode);
}
