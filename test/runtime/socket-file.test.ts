import assert from 'node:assert/strict';
import { lstatSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { UsageError } from '#src/runtime/flags.ts';
import { claimSocketPath } from '#src/runtime/socket-file.ts';

const root = mkdtempSync(join(tmpdir(), 'sutler-socket-'));
after(() => rmSync(root, { recursive: true }));

describe('claimSocketPath', () => {
  for (const [target, name] of [
    ['a file', 'precious'],
    ['nothing', 'missing'],
  ] as const)
    it(`refuses a link to ${target}, and leaves both alone`, async () => {
      writeFileSync(join(root, 'precious'), 'text');
      const path = join(root, `link-to-${name}`);
      symlinkSync(join(root, name), path);
      await assert.rejects(
        claimSocketPath(`--listen unix://${path}`, path),
        (error) => error instanceof UsageError && /is not a socket; remove it/.test(error.message),
      );
      assert.ok(lstatSync(path).isSymbolicLink());
    });
});
