import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import {
  type CertificateOwner,
  clientTls,
  makeCertificates,
  tlsFilesOf,
} from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly secretName?: string;
    readonly dnsNames?: readonly string[];
    readonly usages?: readonly string[];
  };
}

const root = new URL('../../../', import.meta.url);
const text = (path: string): string => readFileSync(new URL(path, root), 'utf8');
const DOCS = text('docs/gateway.md');
const MANIFESTS = parseAllDocuments(text('k8s/cert-manager/certificates.yaml')).map(
  (each) => each.toJS() as unknown,
) as readonly Resource[];
/** Extended key usages by their object identifiers (RFC 5280 section 4.2.1.12). */
const USAGES = new Map([
  ['1.3.6.1.5.5.7.3.1', 'server auth'],
  ['1.3.6.1.5.5.7.3.2', 'client auth'],
]);

function findResource(name: string): Resource {
  const found = MANIFESTS.find(
    ({ kind, metadata }) => kind === 'Certificate' && metadata.name === name,
  );
  assert.ok(found, name);
  return found;
}

describe('certificates for the gateway', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  before(async () => (folder = await makeFolder()));
  after(() => folder.remove());

  it('are the same in docs/gateway.md as in k8s/cert-manager', () => {
    const [, block = ''] = /```yaml\n([\s\S]+?)```/.exec(DOCS) ?? [];
    const [shown] = parseAllDocuments(block).map(
      (each) => each.toJS() as unknown,
    ) as readonly Resource[];
    assert.deepEqual(shown, findResource('sutler-jobs'));
  });

  it('are the same from the script as from cert-manager and fit k8s/gateway', async () => {
    await makeCertificates(
      folder.file('script'),
      findResource('sutler-gateway')
        .spec.dnsNames?.map((name) => `DNS:${name}`)
        .join(','),
    );
    for (const owner of ['gateway', 'ingest', 'jobs'] as const) {
      const made = new X509Certificate(
        await readFile(tlsFilesOf(folder.file('script'), owner).cert),
      );
      const { dnsNames, secretName, usages } = findResource(`sutler-${owner}`).spec;
      assert.deepEqual(
        made.subjectAltName?.split(', '),
        dnsNames?.map((name) => `DNS:${name}`),
      );
      assert.deepEqual(
        ['digital signature', ...(made.keyUsage ?? []).map((usage) => USAGES.get(usage))],
        usages,
      );
      assert.equal(secretName, `sutler-${owner}-tls`);
    }
    const sidecar = text('k8s/gateway/sidecar.yaml');
    const allowed = ['ingest', 'jobs'].flatMap(
      (owner) => findResource(`sutler-${owner}`).spec.dnsNames ?? [],
    );
    assert.ok(
      sidecar.includes(`--tls-allowed-names=${allowed.map((name) => `DNS:${name}`).join(',')}`),
    );
    assert.ok(sidecar.includes('secretName: sutler-gateway-tls'));
  });

  it('allow only listed callers at a gateway started as in docs/gateway.md', async (t) => {
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
    });
    t.after(() => driver.close());
    const [, block = ''] = /without a cluster:\n\n```sh\n([\s\S]+?)```/.exec(DOCS) ?? [];
    const [createCommand = '', startCommand = ''] = block.replaceAll('\\\n', ' ').split('\n');
    await promisify(execFile)(
      'sh',
      ['-c', createCommand.replace('k8s/gateway/', fileURLToPath(new URL('k8s/gateway/', root)))],
      {
        cwd: folder.path,
      },
    );
    const [program, , ...args] = startCommand.split(/ +/);
    assert.equal(program, 'npx');
    const gatewayArgs = args.map((arg) =>
      arg.replace('/run/csi/socket', folder.file('csi.sock')).replace(/:23808$/, ':0'),
    );
    const cli = fileURLToPath(import.meta.resolve('#src/cli.ts'));
    const gateway = spawn(process.execPath, [cli, ...gatewayArgs], {
      cwd: folder.path,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const ended = once(gateway, 'exit');
    t.after(() => gateway.kill('SIGKILL'));
    const [message] = (await once(gateway, 'message')) as [
      { readonly facts: { readonly listen: string } },
    ];
    const address = parseAddress('listen', message.facts.listen);
    const callAs = async <T>(
      owner: CertificateOwner,
      makeCall: (client: CsiClient) => Promise<T>,
    ): Promise<T> => {
      const tls = await clientTls(folder.file('certificates'), owner);
      const client = new CsiClient({ address, tls });
      const result = await makeCall(client);
      client.close();
      tls.close();
      return result;
    };
    const settings = { timeoutMs: 30_000 };
    await callAs('jobs', (client) =>
      until(
        () =>
          client.getCapacity({}, settings).then(
            () => true,
            () => false,
          ),
        'jobs may call',
      ),
    );
    assert.equal(
      await callAs(
        'audit',
        async (client) => (await failureOf(client.getCapacity({}, settings))).code,
      ),
      Code.Unavailable,
    );
    gateway.kill('SIGTERM');
    assert.deepEqual(await ended, [0, null]);
  });
});
