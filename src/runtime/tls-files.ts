import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { messageOf } from './error-message.ts';
import { type FlagTable, UsageError } from './flags.ts';
import type { Logger } from './log.ts';
import type { ProcessContext } from './process.ts';
import { type NamedFile, type WatchedFiles, watchFiles } from './watched-files.ts';

/** PEM files, which may be replaced at any time, for example by cert-manager. */
export interface TlsFiles {
  /** Authorities that the other side's certificate is verified against. */
  readonly ca: NamedFile;
  /** Own certificate, followed by its intermediates. */
  readonly cert: NamedFile;
  readonly key: NamedFile;
}

/** Contents of the files when key and certificate last matched; '' for a file that is not used. */
export interface TlsMaterial {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** When the own certificate expires, in Unix milliseconds; Infinity without one. */
  readonly notAfterMs: number;
}

/** TLS material that may change while it is in use. */
export type TlsSource = Pick<WatchedTlsFiles, 'current' | 'onChange'>;

export type WatchedTlsFiles = WatchedFiles<TlsMaterial>;

/** Whether the flags name all three TLS files, or none.
 * @param isRequired  whether another flag needs them
 * @throws UsageError if some are missing; it lists them in the order of `files` */
export function areTlsFilesNamed(files: TlsFiles, isRequired = false): boolean {
  const all: readonly NamedFile[] = Object.values(files);
  const missing = all.filter(({ path }) => path === '');
  if (missing.length === 0) return true;
  if (missing.length === all.length && !isRequired) return false;
  const [first, second, third] = all.map(({ flag }) => `--${flag}`);
  throw new UsageError(
    `${missing.map(({ flag }) => `--${flag}`).join(' and ')} missing: ` +
      `mutual TLS needs ${first}, ${second} and ${third}`,
  );
}

/** Watches the files until the process closes. Reports in /readyz if they can't be used.
 * @param check  name of the check there
 * @throws as watchTlsFiles */
export async function openTlsFiles(
  { closers, health, log }: Pick<ProcessContext<FlagTable>, 'closers' | 'health' | 'log'>,
  check: string,
  files: TlsFiles,
): Promise<TlsSource> {
  const watched = await watchTlsFiles({ files, log });
  closers.add(`TLS files of ${check}`, () => watched.close());
  health.ready(check, () => watched.trouble);
  return watched;
}

/** Reads the files at once and then every 10 s (watched-files.ts). Ignores files that do not match,
 * because one may be replaced before the other.
 * @throws UsageError if the files can't be used at the start */
export function watchTlsFiles(o: {
  readonly files: TlsFiles;
  readonly log: Logger;
  readonly intervalMs?: number;
}): Promise<WatchedTlsFiles> {
  const { ca, cert, key } = o.files;
  return watchFiles({
    ...o,
    files: [ca, cert, key],
    parse: ([caText = '', certText = '', keyText = '']) => {
      if (ca.path !== '') checkAuthorities(ca, caText);
      const notAfterMs =
        cert.path === ''
          ? Infinity
          : checkCertificate({ ...cert, text: certText }, { ...key, text: keyText });
      // OpenSSL also refuses a broken intermediate and a key that is too short.
      read(cert.path === '' ? ca : cert, "TLS can't use it", () =>
        createSecureContext({ ca: caText, cert: certText, key: keyText }),
      );
      return { ca: caText, cert: certText, key: keyText, notAfterMs };
    },
    expired: ({ notAfterMs }) =>
      Date.now() < notAfterMs
        ? undefined
        : `the certificate in ${cert.path} expired at ${new Date(notAfterMs).toISOString()}: renew it`,
  });
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** @throws UsageError for a text that can't be used */
function checkAuthorities(file: NamedFile, text: string): void {
  const authorities = text.match(PEM_CERTIFICATE) ?? [];
  if (authorities.length === 0) throw faultOf(file, 'it contains no PEM certificate');
  for (const pem of authorities)
    read(file, "a certificate in it can't be read", () => new X509Certificate(pem));
}

/** @returns when the certificate ends, in Unix ms
 * @throws UsageError for texts that can't be used */
function checkCertificate(
  cert: NamedFile & { readonly text: string },
  key: NamedFile & { readonly text: string },
): number {
  const certificate = read(cert, 'it is no PEM certificate', () => new X509Certificate(cert.text));
  const privateKey = read(key, 'it is no PEM private key without a passphrase', () =>
    createPrivateKey(key.text),
  );
  if (!certificate.checkPrivateKey(privateKey))
    throw faultOf(key, `it is not the key of the certificate in ${cert.path}`);
  return Date.parse(certificate.validTo);
}

function read<T>(file: NamedFile, fault: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw faultOf(file, `${fault}: ${messageOf(error)}`);
  }
}

function faultOf({ flag, path }: NamedFile, fault: string): UsageError {
  return new UsageError(`--${flag} ${path}: ${fault}`);
}
