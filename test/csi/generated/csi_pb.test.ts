import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { describe, it } from 'node:test';
import { methodsByPath } from '#src/csi/methods.ts';

describe('generated code', () => {
  const bin = join('node_modules', '.bin');

  it(
    'is what csi.proto gives today',
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

  it('has every method by its path', () => {
    assert.equal(
      methodsByPath.get('/csi.v1.Controller/CreateVolume')?.input.typeName,
      'csi.v1.CreateVolumeRequest',
    );
    assert.equal(methodsByPath.size, 3 + 15 + 4 + 8);
  });
});
