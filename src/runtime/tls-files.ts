import { createPrivateKey, X509Certificate } from 'node:crypto';
import type { Clock } from './clock.ts';
import { messageOf } from './error-message.ts';
import { UsageError } from './flags.ts';
import type { Logger } from './log.ts';
import { watchFiles } from './watched-files.ts';

/** Paths of PEM files, which may be replaced at any time, for example by cert-manager; '' for a
 * file that is not used. */
export interface TlsFiles {
  /** Authorities that the other side's certificate is verified against. */
  readonly ca: string;
  /** Own certificate, followed by its intermediates. */
  readonly cert: string;
  readonly key: string;
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
export interface TlsSource {
  readonly current: TlsMaterial;
  /** Calls the listener after each change of `current`.
   * @returns a function that removes the listener */
  onChange(listener: (next: TlsMaterial, before: TlsMaterial) => void): () => void;
}

export interface WatchedTlsFiles extends TlsSource {
  /** Says that the files can't be used as they are now, or that the certificate in use has expired;
   * undefined otherwise. */
  readonly trouble: string | undefined;
  close(): void;
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** Whether the three TLS files are named: all of them, or none.
 * @param isRequired  whether another flag needs them
 * @throws UsageError if some are missing; it lists them in the order of `flags` */
export function areTlsFilesNamed(
  { files, flags }: { readonly files: TlsFiles; readonly flags: TlsFiles },
  isRequired = false,
): boolean {
  const parts = Object.keys(flags) as (keyof TlsFiles)[];
  const missing = parts.filter((part) => files[part] === '');
  if (missing.length === 0) return true;
  if (missing.length === parts.length && !isRequired) return false;
  const [first, second, third] = parts.map((part) => `--${flags[part]}`);
  throw new UsageError(
    `${missing.map((part) => `--${flags[part]}`).join(' and ')} missing: ` +
      `mutual TLS needs ${first}, ${second} and ${third}`,
  );
}

/** Reads the files at once and then every 10 s (watched-files.ts). Files that do not match (one
 * replaced, the other not yet) are ignored.
 * @param o.flags  names of the flags that give the paths, for errors
 * @throws UsageError if the files can't be used at the start */
export async function watchTlsFiles(o: {
  readonly files: TlsFiles;
  readonly flags: TlsFiles;
  readonly clock: Clock;
  readonly log: Logger;
  readonly intervalMs?: number;
}): Promise<WatchedTlsFiles> {
  const { clock, files, flags } = o;
  const paths = { [flags.ca]: files.ca, [flags.cert]: files.cert, [flags.key]: files.key };
  const watched = await watchFiles({
    ...o,
    paths,
    parse: ({ [flags.ca]: ca = '', [flags.cert]: cert = '', [flags.key]: key = '' }) =>
      readMaterial({ ca, cert, key }, o),
  });
  return {
    get current() {
      return watched.current;
    },
    get trouble() {
      const { notAfterMs } = watched.current;
      if (clock.nowMs() < notAfterMs) return watched.trouble;
      const ended = new Date(notAfterMs).toISOString();
      return `the certificate in ${files.cert} ended at ${ended}: renew it`;
    },
    onChange: (listener) => watched.onChange(listener),
    close: () => watched.close(),
  };
}

/** @throws UsageError for texts that can't be used */
function readMaterial(
  texts: TlsFiles,
  { files, flags }: { readonly files: TlsFiles; readonly flags: TlsFiles },
): TlsMaterial {
  const refuse = (part: keyof TlsFiles, why: string): never => {
    throw new UsageError(`--${flags[part]} ${files[part]}: ${why}`);
  };
  const read = <T extends object>(part: keyof TlsFiles, what: string, parse: () => T): T => {
    try {
      return parse();
    } catch (error) {
      return refuse(part, `${what}: ${messageOf(error)}`);
    }
  };
  const authorities = files.ca === '' ? undefined : (texts.ca.match(PEM_CERTIFICATE) ?? []);
  if (authorities?.length === 0) refuse('ca', 'it contains no PEM certificate');
  for (const pem of authorities ?? [])
    read('ca', "a certificate in it can't be read", () => new X509Certificate(pem));
  if (files.cert === '') return { ...texts, notAfterMs: Infinity };
  const cert = read('cert', 'it is no PEM certificate', () => new X509Certificate(texts.cert));
  const key = read('key', 'it is no PEM private key without a passphrase', () =>
    createPrivateKey(texts.key),
  );
  if (!cert.checkPrivateKey(key))
    refuse('key', `it is not the key of the certificate in ${files.cert}`);
  return { ...texts, notAfterMs: Date.parse(cert.validTo) };
}
