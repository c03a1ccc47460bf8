import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { openGatewaySecurity, refusePlaintext } from '#src/gateway-client/credentials.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { makeCertificates, tlsFilesOf } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { openTestPool } from '../harness/gateway-pool.ts';

const NONE = {
  gatewayTlsCa: '',
  gatewayTlsCert: '',
  gatewayTlsKey: '',
  gatewayTlsServerName: '',
  gatewayInsecure: false,
};
const OPTIONS = { clock: systemClock, log: silentLog };

describe('openGatewaySecurity', () => {
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
    const security = await openGatewaySecurity(files(), OPTIONS);
    assert.ok(security.tls !== undefined);
    assert.equal(security.tls.source.trouble, undefined);
    assert.ok(security.tls.source.current.notAfterMs > Date.now());
    security.close();
  });

  for (const [what, change, message] of [
    ['a missing flag', { gatewayTlsKey: '' }, /--gateway-tls-key missing/],
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
      'an authority file without a certificate',
      { gatewayTlsCa: 'empty' },
      /--gateway-tls-ca .*no PEM certificate/,
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
        openGatewaySecurity({ ...files(), ...changed }, OPTIONS),
        (error) => error instanceof UsageError && message.test(error.message),
      );
    });
  }

  it('refuses a server name without TLS', () =>
    assert.rejects(
      openGatewaySecurity({ ...NONE, gatewayTlsServerName: 'x' }, OPTIONS),
      /--gateway-tls-server-name is for mutual TLS/,
    ));
});

describe('refusePlaintext', () => {
  const plain = { tls: undefined, insecure: false };
  for (const text of [
    'unix:///run/gw.sock',
    'dns:///127.0.0.1:9808',
    'dns:///[::1]:9808',
    'dns:///localhost:9808',
  ]) {
    it(`allows ${text}`, () => refusePlaintext(parseAddress('gateway', text), plain));
  }
  for (const text of [
    'dns:///10.0.0.7:9808',
    'dns:///sutler-gateway.sutler.svc:9808',
    'dns:///[2001:db8::1]:9808',
  ]) {
    it(`refuses ${text} without --gateway-insecure`, () => {
      const address = parseAddress('gateway', text);
      assert.throws(() => refusePlaintext(address, plain), /beyond loopback, which needs TLS/);
      refusePlaintext(address, { tls: undefined, insecure: true });
      assert.throws(() => openTestPool(text), UsageError);
    });
  }
});
