import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { directDependencies, neededBy } from './lock-file.ts';

/** The compiled files of `src/`. */
const SRC = fileURLToPath(new URL('../../../dist/', import.meta.url));
const CLIENT_NODE = '@kubernetes/client-node';

/** Names of the packages that a compiled file and the files that it imports load at once. What is
 * loaded later, by `import()`, is not among them. */
function packagesOf(file: string): readonly string[] {
  const seen = new Set<string>();
  const packages = new Set<string>();
  const visit = (path: string): void => {
    if (seen.has(path)) return;
    seen.add(path);
    const text = readFileSync(path, 'utf8');
    for (const [, target = ''] of text.matchAll(/^(?:import|export)\b[^;'=]*'([^']+)';$/gm))
      if (target.startsWith('.')) visit(join(dirname(path), target));
      else if (!target.startsWith('node:'))
        packages.add(/^(@[^/]+\/)?[^/]+/.exec(target)?.[0] ?? target);
  };
  visit(join(SRC, file));
  assert.ok(seen.size > 20 && packages.has('pino'), [...packages].join(' '));
  return [...packages];
}

describe('packages that a process loads', () => {
  const ofOthers = neededBy(directDependencies.filter((name) => name !== CLIENT_NODE));
  const ofClientNode = [...neededBy([CLIENT_NODE])].filter((folder) => !ofOthers.has(folder));

  for (const file of [
    'ingest/main.js',
    'webhooks/open-webhooks.js',
    'jobs/main.js',
    'csi-gateway/main.js',
    'dashboard/main.js',
  ])
    it(`are none of client-node, nor one that reads YAML, without a kubeconfig: ${file}`, () => {
      assert.ok(ofClientNode.length > 30);
      const loaded = neededBy(packagesOf(file));
      assert.deepEqual(
        [...ofClientNode, 'node_modules/yaml'].filter((folder) => loaded.has(folder)),
        [],
      );
    });

  it('are in the gateway only those of gRPC, logs, metrics and protobuf', () => {
    const allowed = ['@bufbuild/protobuf', '@grpc/grpc-js', 'pino', 'prom-client', 'quick-lru'];
    const others = packagesOf('csi-gateway/main.js').filter((name) => !allowed.includes(name));
    assert.deepEqual(others, []);
  });
});
