import assert from 'node:assert/strict';
import { mkdir, rename, symlink, unlink, writeFile } from 'node:fs/promises';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { DriverConfig } from '#src/driver-config/read-config.ts';
import { watchDriverConfig, type WatchedDriverConfig } from '#src/driver-config/serve-drivers.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { until } from '../harness/until.ts';

const PERIOD_MS = 20;

/** A text is a list of names; one with "bad" is refused. */
function read(text: string): Promise<DriverConfig | readonly { line: number; what: string }[]> {
  const names = text.split(/\s+/).filter((name) => name !== '');
  if (names.includes('bad')) return Promise.resolve([{ line: 2, what: 'bad' }]);
  return Promise.resolve(new Map(names.map((name) => [name, { name, values: {} }])));
}

/** A clock whose pauses end when the test says so. */
class Looks implements Clock {
  #end: () => void = () => undefined;
  #paused: () => void = () => undefined;
  #isPaused = new Promise<void>((resolve) => (this.#paused = resolve));

  nowMs(): number {
    return 0;
  }

  sleep(_ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      this.#end = resolve;
      signal?.addEventListener('abort', () => resolve());
      this.#paused();
    });
  }

  /** Resolves when one more look is over. */
  async next(): Promise<void> {
    await this.#isPaused;
    this.#isPaused = new Promise((resolve) => (this.#paused = resolve));
    this.#end();
    await this.#isPaused;
  }
}

describe('watchDriverConfig', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let path: string;
  let serial = 0;
  const watched: WatchedDriverConfig[] = [];
  const watch = async (clock: Clock = systemClock): Promise<WatchedDriverConfig> => {
    const config = await watchDriverConfig({
      path,
      read,
      clock,
      log: silentLog,
      periodMs: PERIOD_MS,
    });
    watched.push(config);
    return config;
  };
  const untilNames = (config: WatchedDriverConfig, ...names: string[]): Promise<void> =>
    until(() => [...config.current.keys()].join() === names.join(), `the names ${names.join()}`);

  before(async () => {
    folder = await makeFolder();
  });
  beforeEach(async () => {
    path = folder.file(`${(serial += 1)}.yaml`);
    await writeFile(path, 'one');
  });
  after(async () => {
    for (const config of watched) config.close();
    await folder.remove();
  });

  it('notices a file that is written in place', async () => {
    const config = await watch();
    const seen: string[] = [];
    config.onChange((next) => seen.push([...next.keys()].join()));
    await writeFile(path, 'one two');
    await untilNames(config, 'one', 'two');
    assert.deepEqual(seen, ['one,two']);
  });

  it('notices the change of a mounted ConfigMap, which swaps a link to a folder', async () => {
    const mount = folder.file(`mount-${serial}`);
    await mkdir(`${mount}/..1`, { recursive: true });
    await mkdir(`${mount}/..2`);
    await writeFile(`${mount}/..1/drivers.yaml`, 'one');
    await writeFile(`${mount}/..2/drivers.yaml`, 'two');
    await symlink('..1', `${mount}/..data`);
    await symlink('..data/drivers.yaml', `${mount}/drivers.yaml`);
    path = `${mount}/drivers.yaml`;
    const config = await watch();
    await untilNames(config, 'one');
    await symlink('..2', `${mount}/..new`);
    await rename(`${mount}/..new`, `${mount}/..data`);
    await untilNames(config, 'two');
  });

  it('keeps the last good content of a file that can’t be used, and says why', async () => {
    const config = await watch();
    await writeFile(path, 'one\nbad');
    await until(() => config.trouble !== undefined, 'it is reported');
    assert.match(config.trouble ?? '', /--driver-config .*: line 2: bad/);
    await untilNames(config, 'one');
    await writeFile(path, 'one two');
    await untilNames(config, 'one', 'two');
    assert.equal(config.trouble, undefined);
  });

  it('uses no text that it found only once', async () => {
    const looks = new Looks();
    const config = await watch(looks);
    const seen: string[] = [];
    config.onChange((next) => seen.push([...next.keys()].join()));
    await looks.next();
    // A file that is written in place: half of it, then all.
    await writeFile(path, 'one tw');
    await looks.next();
    await writeFile(path, 'one two');
    await looks.next();
    assert.deepEqual(seen, []);
    await looks.next();
    assert.deepEqual(seen, ['one,two']);
  });

  it('refuses a start with a file that can’t be used', async () => {
    await writeFile(path, 'bad');
    await assert.rejects(watch(), /--driver-config .*: line 2: bad/);
    await unlink(path);
    await assert.rejects(watch(), /--driver-config .*: ENOENT/);
    await writeFile(path, ' '.repeat(1024 * 1024 + 1));
    await assert.rejects(watch(), /longer than 1 MiB/);
  });
});
