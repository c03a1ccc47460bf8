import { execFile } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The PEM files of a certificate and its key. */
export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
}

/** A certificate authority for one test run. The openssl command signs its certificates, because
 * Node has no API for that. */
export interface Authority {
  readonly caFile: string;
  /** Signs a certificate for a server on loopback, which may also act as client (etcd needs both).
   */
  server(name: string): Promise<Certificate>;
  /** Signs a client certificate; Kubernetes reads the user from `commonName` and the group from
   * `organization`. */
  client(
    name: string,
    subject: { readonly commonName: string; readonly organization?: string },
  ): Promise<Certificate>;
}

/** Creates an authority with its files in `folder`.
 * @throws Error if the openssl command fails or is missing */
export async function createAuthority(folder: string): Promise<Authority> {
  const caFile = join(folder, 'ca.crt');
  const caKeyFile = join(folder, 'ca.key');
  await openssl([
    'req',
    '-x509',
    ...newKey(caKeyFile),
    '-out',
    caFile,
    '-days',
    '2',
    '-subj',
    '/CN=sutler-test-ca',
  ]);

  const sign = async (name: string, subject: string, extensions: string): Promise<Certificate> => {
    const certFile = join(folder, `${name}.crt`);
    const keyFile = join(folder, `${name}.key`);
    const requestFile = join(folder, `${name}.csr`);
    const extensionFile = join(folder, `${name}.ext`);
    await writeFile(extensionFile, extensions);
    await openssl(['req', '-new', ...newKey(keyFile), '-out', requestFile, '-subj', subject]);
    const signing = [
      '-CA',
      caFile,
      '-CAkey',
      caKeyFile,
      '-set_serial',
      serial(name),
      '-days',
      '2',
      '-extfile',
      extensionFile,
    ];
    await openssl(['x509', '-req', '-in', requestFile, '-out', certFile, ...signing]);
    return { certFile, keyFile };
  };
  return {
    caFile,
    server: (name) =>
      sign(
        name,
        `/CN=${name}`,
        'subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1\n' +
          'extendedKeyUsage=serverAuth,clientAuth\n',
      ),
    client: (name, { commonName, organization }) =>
      sign(
        name,
        `${organization === undefined ? '' : `/O=${organization}`}/CN=${commonName}`,
        'extendedKeyUsage=clientAuth\n',
      ),
  };
}

/** Writes an RSA key pair as PEM for service-account tokens. */
export async function writeServiceAccountKeys(
  folder: string,
): Promise<{ readonly privateFile: string; readonly publicFile: string }> {
  const pair = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  const privateFile = join(folder, 'service-account.key');
  const publicFile = join(folder, 'service-account.pub');
  await writeFile(privateFile, pair.privateKey, { mode: 0o600 });
  await writeFile(publicFile, pair.publicKey);
  return { privateFile, publicFile };
}

/** Reads both halves of a certificate as PEM text. */
export async function readCertificate(
  certificate: Certificate,
): Promise<{ readonly cert: string; readonly key: string }> {
  const [cert, key] = await Promise.all([
    readFile(certificate.certFile, 'utf8'),
    readFile(certificate.keyFile, 'utf8'),
  ]);
  return { cert, key };
}

function newKey(keyFile: string): string[] {
  return [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    keyFile,
  ];
}

/** A serial number from the name, which is unique within an authority. */
function serial(name: string): string {
  return `0x${Buffer.from(name.slice(0, 16)).toString('hex')}`;
}

async function openssl(args: readonly string[]): Promise<void> {
  try {
    await run('openssl', args);
  } catch (cause) {
    throw new Error(
      'openssl failed: a real control plane needs the openssl command for its certificates',
      { cause },
    );
  }
}
