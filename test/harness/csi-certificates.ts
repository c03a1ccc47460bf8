import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ClientTls } from '#src/gateway-client/credentials.ts';
import { type TlsMaterial, type WatchedTlsFiles, watchTlsFiles } from '#src/runtime/tls-files.ts';
import { silentLog } from '#src/runtime/log.ts';

// Tests run from dist-dev/test/harness.
const SCRIPT = fileURLToPath(new URL('../../../k8s/gateway/certificates.sh', import.meta.url));

export type CertificateOwner = 'gateway' | 'ingest' | 'jobs' | 'audit';

/** Creates certificates with the script that docs/gateway.md describes, by default for a gateway on
 * this machine. */
export async function makeCertificates(
  folder: string,
  gatewayNames = 'DNS:localhost,IP:127.0.0.1,IP:::1',
): Promise<void> {
  await promisify(execFile)(SCRIPT, [folder], {
    env: { PATH: process.env['PATH'], GATEWAY_NAMES: gatewayNames, DAYS: '2' },
  });
}

/** The files that the script creates for one process. */
export function tlsFilesOf(
  folder: string,
  owner: CertificateOwner,
): Omit<TlsMaterial, 'notAfterMs'> {
  return {
    ca: join(folder, 'ca.crt'),
    cert: join(folder, `${owner}.crt`),
    key: join(folder, `${owner}.key`),
  };
}

/** Reads the files of one process and checks them for changes every 20 ms. */
export function watchOwner(folder: string, owner: CertificateOwner): Promise<WatchedTlsFiles> {
  const { ca, cert, key } = tlsFilesOf(folder, owner);
  return watchTlsFiles({
    files: {
      ca: { flag: 'ca', path: ca },
      cert: { flag: 'cert', path: cert },
      key: { flag: 'key', path: key },
    },
    log: silentLog,
    intervalMs: 20,
  });
}

/** The certificates with which one process calls the gateway. */
export async function clientTls(
  folder: string,
  owner: CertificateOwner,
  serverName = '',
): Promise<ClientTls & { close(): void }> {
  const source = await watchOwner(folder, owner);
  return { source, serverName, close: () => source.close() };
}
