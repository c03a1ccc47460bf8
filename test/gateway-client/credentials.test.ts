import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { openClientTls } from '#src/gateway-client/credentials.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { makeCertificates, tlsFilesOf } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';

const NONE = { gatewayTlsCa: '', gatewayTlsCert: '', gatewayTlsKey: '', gatewayTlsServerName: '' };

describe('openClientTls', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  before(async () => {
    folder = await makeFolder();
    await makeCertificates(folder.file('tls'));
    await writeFile(folder.file('empty'), '');
  });
  after(() => folder.remove());
  const files = (): typeof NONE => {
    const { ca, cert, key } = tlsFilesOf(folder.file('tls'), 'jobs');
    return { ...NONE, gatewayTlsCa: ca, gatewayTlsCert: cert, gatewayTlsKey: key };
  };

  it('opens three matching files', async () => {
    const tls = await openClientTls(files(), silentLog);
    assert.ok(tls !== undefined);
    assert.equal(tls.source.trouble, undefined);
    assert.ok(tls.source.current.notAfterMs > Date.now());
    tls.source.close();
  });

  for (const [what, change, message] of [
    [
      'two missing flags',
      { gatewayTlsKey: '', gatewayTlsCa: '' },
      /--gateway-tls-ca and --gateway-tls-key missing/,
    ],
    [
      'a missing file',
      { gatewayTlsCert: '/nonexistent' },
      /--gateway-tls-cert \/nonexistent: ENOENT/,
    ],
    [
      'a certificate file without a certificate',
      { gatewayTlsCert: 'empty' },
      /--gateway-tls-cert .*no PEM certificate/,
    ],
    [
      'a key of another certificate',
      { gatewayTlsKey: 'tls/audit.key' },
      /not the key of the certificate/,
    ],
  ] as const) {
    it(`refuses ${what} and names it`, async () => {
      const changed = Object.fromEntries(
        Object.entries(change).map(([flag, path]) => [
          flag,
          path === '' || path.startsWith('/') ? path : folder.file(path),
        ]),
      );
      await assert.rejects(
        openClientTls({ ...files(), ...changed }, silentLog),
        (error) => error instanceof UsageError && message.test(error.message),
      );
    });
  }

  it('refuses a server name without TLS', () =>
    assert.rejects(
      openClientTls({ ...NONE, gatewayTlsServerName: 'x' }, silentLog),
      /--gateway-tls-server-name is for mutual TLS/,
    ));
});
