import assert from 'node:assert/strict';
import { it } from 'node:test';
import { openSession } from '#src/csi/open-session.ts';
import { freePort } from '../harness/free-port.ts';
import { makeFolder } from '../harness/csi-folder.ts';

it('openSession with a timeout of 30 days does not time out at once', async (t) => {
  const folder = await makeFolder();
  const timers = t.mock.method(globalThis, 'setTimeout');
  const address = { kind: 'unix', path: folder.file('missing.sock') } as const;
  const opened = await openSession(address, {
    timeoutMs: 30 * 86_400_000,
    maxMessageBytes: 1024,
    signal: new AbortController().signal,
  });
  const delays = timers.mock.calls.map(({ arguments: [, ms] }) => ms ?? 0);
  await folder.remove();
  assert.ok(typeof opened === 'string', 'no process listens there');
  assert.equal(Math.max(...delays), 2_147_483_647);
});

it('openSession names the reason for each address of a host', async () => {
  const opened = await openSession(
    { kind: 'tcp', host: 'localhost', port: await freePort() },
    { timeoutMs: 30_000, maxMessageBytes: 1024, signal: new AbortController().signal },
  );
  assert.ok(typeof opened === 'string');
  assert.match(opened, /ECONNREFUSED/);
});
