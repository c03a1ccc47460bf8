import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { describe, it } from 'node:test';

describe('src/csi/generated', () => {
  const bin = join('node_modules', '.bin');

  it(
    'is up to date with csi.proto',
    { skip: existsSync(join(bin, 'buf')) ? false : 'buf is a development dependency' },
    () => {
      const out = mkdtempSync(join(tmpdir(), 'sutler-buf-'));
      try {
        const env = {
          ...process.env,
          PATH: `${join(process.cwd(), bin)}${delimiter}${process.env['PATH'] ?? ''}`,
        };
        execFileSync(join(bin, 'buf'), ['generate', '-o', out], { env, stdio: 'pipe' });
        const fresh = readFileSync(join(out, 'src/csi/generated/csi_pb.ts'), 'utf8');
        assert.ok(
          fresh === readFileSync('src/csi/generated/csi_pb.ts', 'utf8'),
          'run npm run generate:csi and commit src/csi/generated',
        );
      } finally {
        rmSync(out, { recursive: true, force: true });
      }
    },
  );
});
