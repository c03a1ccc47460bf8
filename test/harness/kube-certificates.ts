import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A certificate and its key, as PEM texts and files. */
export interface Pair {
  readonly cert: string;
  readonly key: string;
  readonly certFile: string;
  readonly keyFile: string;
}

/** A certificate authority. The openssl command creates it. */
export interface Authority {
  readonly ca: string;
  readonly caFile: string;
  /** A server certificate for 127.0.0.1, ::1 and the names given. */
  server(...names: string[]): Pair;
  client(name: string): Pair;
}

function openssl(...args: string[]): void {
  execFileSync('openssl', args, { stdio: 'pipe' });
}

/** Creates an authority with its files in `directory`. */
export function createAuthority(directory: string, name: string): Authority {
  const at = (file: string): string => join(directory, `${name}-${file}`);
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const [caFile, caKeyFile, days] = [at('ca.crt'), at('ca.key'), ['-days', '2']];
  const own = ['-keyout', caKeyFile, '-out', caFile, '-subj', `/CN=${name}`];
  openssl('req', '-x509', ...newKey, ...own, ...days);
  let serial = 0;
  const issue = (subject: string, extensions: string): Pair => {
    const file = at(`issued-${++serial}`);
    const [certFile, keyFile] = [`${file}.crt`, `${file}.key`];
    writeFileSync(`${file}.ext`, extensions);
    openssl('req', ...newKey, '-keyout', keyFile, '-out', `${file}.csr`, '-subj', subject);
    const signer = ['-CA', caFile, '-CAkey', caKeyFile, '-set_serial', `${Date.now() + serial}`];
    const files = ['-in', `${file}.csr`, '-out', certFile, '-extfile', `${file}.ext`];
    openssl('x509', '-req', ...files, ...signer, ...days);
    const [cert, key] = [readFileSync(certFile, 'utf8'), readFileSync(keyFile, 'utf8')];
    return { cert, key, certFile, keyFile };
  };
  return {
    ca: readFileSync(caFile, 'utf8'),
    caFile,
    server: (...names) => {
      const all = ['IP:127.0.0.1', 'IP:::1', ...names.map((dns) => `DNS:${dns}`)].join(',');
      return issue('/CN=server', `subjectAltName=${all}\nextendedKeyUsage=serverAuth,clientAuth\n`);
    },
    client: (client) => issue(`/CN=${client}`, 'extendedKeyUsage=clientAuth\n'),
  };
}
