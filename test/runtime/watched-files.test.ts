import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { watchFiles } from '#src/runtime/watched-files.ts';
import { until } from '../harness/until.ts';

function parse([text = '']: readonly string[]): number {
  if (!/^\d+$/.test(text)) throw new Error('it is no number');
  return Number(text);
}

describe('a watched file', () => {
  let folder: string;
  let path: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sutler-watched-'));
    path = join(folder, 'file');
  });
  after(() => rm(folder, { recursive: true }));

  const options = { parse, log: silentLog, intervalMs: 5 };
  const watch = (of = path) => watchFiles({ files: [{ flag: 'file', path: of }], ...options });

  it('is used as it is now, and as it was while it can not be used', async () => {
    await writeFile(path, '1');
    const watched = await watch();
    assert.equal(watched.current, 1);
    await writeFile(path, '2');
    await until(() => watched.current === 2, 'the new content is used');
    await writeFile(path, 'x');
    await until(() => watched.trouble !== undefined, 'there is trouble');
    assert.match(watched.trouble ?? '', /^--file .*: it is no number$/);
    assert.equal(watched.current, 2);
    await rm(path);
    await until(() => watched.trouble?.includes('ENOENT'), 'the file is missed');
    await writeFile(path, '2');
    await until(() => watched.trouble === undefined, 'the trouble is over');
    watched.close();
  });

  it('must be usable at the start', async () => {
    await writeFile(path, 'x');
    await assert.rejects(watch(), UsageError);
    await rm(path);
    await assert.rejects(watch(), /--file .*ENOENT/);
  });

  it('may be one of a mounted ConfigMap, which swaps a link to a folder', async () => {
    const mount = join(folder, 'mount');
    for (const [n, text] of ['1', '2'].entries()) {
      await mkdir(`${mount}/..${n}`, { recursive: true });
      await writeFile(`${mount}/..${n}/file`, text);
    }
    await symlink('..0', `${mount}/..data`);
    await symlink('..data/file', `${mount}/file`);
    const watched = await watch(`${mount}/file`);
    assert.equal(watched.current, 1);
    await symlink('..1', `${mount}/..new`);
    await rename(`${mount}/..new`, `${mount}/..data`);
    await until(() => watched.current === 2, 'the new file is used');
    watched.close();
  });
});
