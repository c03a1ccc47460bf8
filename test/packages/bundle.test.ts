import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, readdir, readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { processes } from '#src/processes.ts';
import { makeFolder } from '../harness/csi-folder.ts';

const run = promisify(execFile);
// Tests run from dist-dev/test/packages.
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

describe('the bundle of the image and of the tarball', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  before(async () => {
    folder = await makeFolder();
    await cp(`${ROOT}/package.json`, folder.file('package.json'));
    await cp(`${ROOT}/k8s`, folder.file('k8s'), { recursive: true });
    await run(process.execPath, [`${ROOT}/scripts/bundle.mjs`, folder.file('dist')]);
  });
  after(() => folder.remove());

  it('has every process, and each finds the packages that it loads', async () => {
    const helps = Object.entries(processes).map(async ([name, { summary }]) => {
      const { stdout } = await run(process.execPath, [folder.file('dist/cli.js'), name, '--help']);
      assert.ok(stdout.startsWith(`sutler ${name}: ${summary}`), stdout);
    });
    await Promise.all(helps);
  });

  it('names the licence of each package that it contains', async () => {
    const files = await readdir(folder.file('dist'), { recursive: true });
    const maps = files.filter((name) => name.endsWith('.js.map'));
    const texts = await Promise.all(
      maps.map((name) => readFile(folder.file(`dist/${name}`), 'utf8')),
    );
    const sources = texts.flatMap((text) => (JSON.parse(text) as { sources: string[] }).sources);
    const names = sources.flatMap(
      (path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? [],
    );
    // Some name what their own build had.
    const packages = [...new Set(names)].filter((name) =>
      existsSync(`${ROOT}/node_modules/${name}/package.json`),
    );
    const notices = await readFile(folder.file('dist/THIRD-PARTY-NOTICES.txt'), 'utf8');
    const named = [...notices.matchAll(/^(\S+) \d+\.\S+ \(.+\)$/gm)].map(([, name = '']) => name);
    assert.ok(packages.length > 50, String(packages.length));
    assert.ok((notices.match(/^Permission is hereby granted/gm)?.length ?? 0) > 50);
    assert.deepEqual(
      packages.filter((name) => !named.includes(name)),
      [],
    );
  });
});
