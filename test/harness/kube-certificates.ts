import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Pair {
  readonly cert: string;
  readonly key: string;
}

/** A certificate authority. The openssl command creates it. */
export interface Authority {
  readonly ca: string;
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
  openssl(
    'req',
    '-x509',
    ...newKey,
    '-keyout',
    at('ca.key'),
    '-out',
    at('ca.crt'),
    '-subj',
    `/CN=${name}`,
    '-days',
    '2',
  );
  let serial = 0;
  const issue = (subject: string, extensions: string): Pair => {
    const file = at(`issued-${++serial}`);
    writeFileSync(`${file}.ext`, extensions);
    openssl('req', ...newKey, '-keyout', `${file}.key`, '-out', `${file}.csr`, '-subj', subject);
    const signing = [
      '-CA',
      at('ca.crt'),
      '-CAkey',
      at('ca.key'),
      '-set_serial',
      String(Date.now() + serial),
      '-days',
      '2',
      '-extfile',
      `${file}.ext`,
    ];
    openssl('x509', '-req', '-in', `${file}.csr`, '-out', `${file}.crt`, ...signing);
    return { cert: readFileSync(`${file}.crt`, 'utf8'), key: readFileSync(`${file}.key`, 'utf8') };
  };
  return {
    ca: readFileSync(at('ca.crt'), 'utf8'),
    server: (...names) =>
      issue(
        '/CN=server',
        `subjectAltName=${['IP:127.0.0.1', 'IP:::1', ...names.map((dns) => `DNS:${dns}`)].join(',')}\n` +
          'extendedKeyUsage=serverAuth\n',
      ),
    client: (client) => issue(`/CN=${client}`, 'extendedKeyUsage=clientAuth\n'),
  };
}
