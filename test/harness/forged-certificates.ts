import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** A certificate with its key, as PEM texts. */
export interface Identity {
  /** Followed by its issuer's certificate, if that is no authority. */
  readonly cert: string;
  readonly key: string;
}

const run = promisify(execFile);
const CURVE = 'ec_paramgen_curve:prime256v1';
const NEW_KEY = ['req', '-new', '-newkey', 'ec', '-pkeyopt', CURVE, '-nodes'];

/** Signs a client certificate as `k8s/gateway/certificates.sh` does, but with any contents.
 * @param folder  with the files of that script
 * @param options.issuer          whose key signs it: the authority, or one of its leaves
 * @param options.commonName      default: forged
 * @param options.subjectAltName  in the notation of openssl; absent: the extension is left out */
export async function signCertificate(
  folder: string,
  options: {
    readonly issuer?: 'ca' | 'audit';
    readonly commonName?: string;
    readonly subjectAltName?: string;
  },
): Promise<Identity> {
  const { issuer = 'ca', commonName = 'forged', subjectAltName } = options;
  const file = (name: string): string => join(folder, name);
  const extensions = [
    ...(subjectAltName === undefined ? [] : [`subjectAltName=${subjectAltName}`]),
    'extendedKeyUsage=clientAuth',
    'basicConstraints=critical,CA:FALSE',
  ];
  await writeFile(file('forged.ext'), extensions.join('\n'));
  const request = ['-keyout', file('forged.key'), '-out', file('forged.csr')];
  await run('openssl', [...NEW_KEY, ...request, '-subj', `/CN=${commonName}`]);
  const signer = ['-CA', file(`${issuer}.crt`), '-CAkey', file(`${issuer}.key`)];
  const files = ['-in', file('forged.csr'), '-out', file('forged.crt')];
  const contents = ['-set_serial', String(Date.now()), '-extfile', file('forged.ext')];
  await run('openssl', ['x509', '-req', '-days', '2', ...signer, ...files, ...contents]);
  const cert = await readFile(file('forged.crt'), 'utf8');
  const chain = issuer === 'ca' ? '' : await readFile(file(`${issuer}.crt`), 'utf8');
  return { cert: cert + chain, key: await readFile(file('forged.key'), 'utf8') };
}

/** A subjectAltName with one DNS name, as bytes: openssl's own notation has no NUL. */
export function dnsNameAsBytes(name: string): string {
  const text = Buffer.from(name, 'latin1');
  const entry = Buffer.concat([Buffer.from([0x82, text.length]), text]);
  const sequence = Buffer.concat([Buffer.from([0x30, entry.length]), entry]);
  return `DER:${sequence.toString('hex').replace(/..(?!$)/g, '$&:')}`;
}
