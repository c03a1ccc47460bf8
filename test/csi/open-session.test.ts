import assert from 'node:assert/strict';
import { it } from 'node:test';
import { openSession } from '#src/csi/open-session.ts';
import { freePort } from '../harness/free-port.ts';

it('openSession names the reason for each address of a host', async () => {
  const opened = await openSession(
    { kind: 'tcp', host: 'localhost', port: await freePort() },
    { timeoutMs: 30_000, maxMessageBytes: 1024, signal: new AbortController().signal },
  );
  assert.ok(typeof opened === 'string');
  assert.match(opened, /ECONNREFUSED/);
});
