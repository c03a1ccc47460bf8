import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { flagsOf } from '#src/dispatch.ts';
import { parseDriverConfig } from '#src/driver-config/read-config.ts';
import { flags as table } from '#src/jobs/flags.ts';
import { processes } from '#src/processes.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const known = flagsOf(processes);
/** As in k8s/base. */
const TLS = ['ca', 'cert', 'key'].map((file) => `--gateway-tls-${file}=/etc/sutler/tls/${file}`);

/** The names of the drivers in a file, each of which a process with certificates can serve. */
async function driversOf(text: string): Promise<readonly string[]> {
  const parsed = parseFlags(table, { argv: TLS, env: {}, known });
  assert.ok(parsed.kind === 'run');
  const context = { known, flags: parsed.flags, env: {} };
  const config = await parseDriverConfig<typeof table>(text, context, () => undefined);
  return [...config.keys()];
}

describe('the examples of --driver-config', () => {
  it('in k8s/drivers are valid', async () => {
    const names = await driversOf(readFileSync(join(ROOT, 'k8s/drivers/drivers.yaml'), 'utf8'));
    assert.deepEqual(names, ['ebs.csi.aws.com', 'efs.csi.aws.com']);
  });

  it('in docs/drivers.md are valid', async () => {
    const page = readFileSync(join(ROOT, 'docs/drivers.md'), 'utf8');
    const [, text = ''] = /```yaml\n([\s\S]*?)```/.exec(page) ?? [];
    assert.equal((await driversOf(text)).length, 3);
  });
});
