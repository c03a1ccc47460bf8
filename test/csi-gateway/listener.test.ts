import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { listen } from '#src/csi-gateway/listener.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { until } from '../harness/until.ts';

describe('listen', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  const servers: Server[] = [];
  const server = (): Server => {
    const made = createServer();
    servers.push(made);
    return made;
  };
  before(async () => (folder = await makeFolder()));
  after(async () => {
    for (const each of servers) each.close();
    await folder.remove();
  });

  it('makes folder and socket, with mode 0600 from the start, whatever the umask', async () => {
    const made = server();
    const path = folder.file('new/folder/gw.sock');
    let mode = 0;
    made.once('listening', () => (mode = statSync(path).mode & 0o777));
    const mask = process.umask(0);
    assert.deepEqual(await listen(made, { kind: 'unix', path }), { kind: 'unix', path });
    assert.equal(process.umask(mask), 0, 'the umask is restored');
    assert.equal(mode, 0o600);
  });

  it('does not follow a symbolic link to change the mode of another file', async () => {
    const [path, victim] = [folder.file('swapped.sock'), folder.file('victim')];
    await writeFile(victim, 'of somebody else', { mode: 0o644 });
    const made = server();
    made.once('listening', () => {
      rmSync(path);
      symlinkSync(victim, path);
    });
    await listen(made, { kind: 'unix', path });
    assert.equal(statSync(victim).mode & 0o777, 0o644);
  });

  it('refuses a socket that accepts connections', async () => {
    const path = folder.file('taken.sock');
    await listen(server(), { kind: 'unix', path });
    await assert.rejects(
      listen(server(), { kind: 'unix', path }),
      (error) => error instanceof UsageError && /in use/.test(error.message),
    );
  });

  it('replaces the socket of a process that died', async () => {
    const path = folder.file('stale.sock');
    const child = spawn(
      process.execPath,
      ['-e', `require('net').createServer().listen(${JSON.stringify(path)})`],
      { stdio: 'ignore' },
    );
    await until(() => existsSync(path), 'the child listens');
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
    assert.ok(existsSync(path), 'the dead process left its socket');
    await listen(server(), { kind: 'unix', path });
  });

  for (const [what, target] of [
    ['a file', undefined],
    ['a link to a file', 'precious'],
    ['a link to nothing', 'missing'],
  ] as const)
    it(`does not replace ${what}`, async () => {
      await writeFile(folder.file('precious'), 'text');
      const path = folder.file(target === undefined ? 'precious' : `link to ${target}`);
      if (target !== undefined) symlinkSync(folder.file(target), path);
      const before = lstatSync(path);
      await assert.rejects(
        listen(server(), { kind: 'unix', path }),
        (error) => error instanceof UsageError && /is not a socket; remove it/.test(error.message),
      );
      assert.equal(lstatSync(path).ino, before.ino);
    });

  it('listens on TCP on loopback only and returns the port', async () => {
    const address = await listen(server(), { kind: 'tcp', host: '127.0.0.1', port: 0 });
    assert.ok(address.kind === 'tcp' && address.port > 0);
    for (const host of ['0.0.0.0', '::', '10.0.0.1', 'example.org']) {
      await assert.rejects(
        listen(server(), { kind: 'tcp', host, port: 0 }),
        (error) => error instanceof UsageError && /loopback/.test(error.message),
      );
    }
    await assert.rejects(
      listen(server(), address),
      (error) => error instanceof UsageError && /in use/.test(error.message),
    );
  });
});
