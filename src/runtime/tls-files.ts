import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type Clock, repeatAfterPauses } from './clock.ts';
import { messageOf } from './error-message.ts';
import { UsageError } from './flags.ts';
import type { Logger } from './log.ts';

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

const INTERVAL_MS = 10_000;
/** Each certificate in the text of a PEM file. */
export const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

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

/** Reads the files at once and then every 10 s. Polling is used instead of inotify, because the
 * files of a mounted Secret are symbolic links into a folder that is replaced, and some volumes
 * send no notifications. Files that do not match (one replaced, the other not yet) are ignored.
 * @param o.flags  names of the flags that give the paths, for errors
 * @throws UsageError if the files can't be used at the start */
export async function watchTlsFiles(o: {
  readonly files: TlsFiles;
  readonly flags: TlsFiles;
  readonly clock: Clock;
  readonly log: Logger;
  readonly intervalMs?: number;
}): Promise<WatchedTlsFiles> {
  const { clock, log, files, flags, intervalMs = INTERVAL_MS } = o;
  const first = await readMaterial(files, flags);
  if (typeof first === 'string') throw new UsageError(first);
  let current = first;
  let trouble: string | undefined;
  const listeners = new Set<(next: TlsMaterial, before: TlsMaterial) => void>();
  const closed = new AbortController();

  const reload = async (): Promise<void> => {
    const read = await readMaterial(files, flags);
    if (closed.signal.aborted) return;
    if (typeof read === 'string') {
      if (read !== trouble)
        log.warn({ reason: read }, 'the TLS files can not be used: the earlier ones stay in use');
      trouble = read;
      return;
    }
    trouble = undefined;
    if (read.ca === current.ca && read.cert === current.cert && read.key === current.key) return;
    const before = current;
    current = read;
    log.info(
      files.cert === '' ? { ca: files.ca } : { cert: files.cert, notAfter: timeText(read) },
      'the TLS files were replaced and are now in use',
    );
    for (const listener of listeners) listener(read, before);
  };
  void repeatAfterPauses({ step: reload, pauseMs: intervalMs, clock, signal: closed.signal });
  return {
    get current() {
      return current;
    },
    get trouble() {
      if (clock.nowMs() >= current.notAfterMs)
        return `the certificate in ${files.cert} ended at ${timeText(current)}: renew it`;
      return trouble;
    },
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close: () => closed.abort(),
  };
}

function timeText({ notAfterMs }: TlsMaterial): string {
  return new Date(notAfterMs).toISOString();
}

/** @returns the contents of the files, or a line that says why they can't be used */
async function readMaterial(files: TlsFiles, flags: TlsFiles): Promise<TlsMaterial | string> {
  const texts = { ca: '', cert: '', key: '' };
  for (const part of ['ca', 'cert', 'key'] as const) {
    try {
      if (files[part] !== '') texts[part] = await readFile(files[part], 'utf8');
    } catch (error) {
      return `--${flags[part]} ${files[part]}: ${messageOf(error)}`;
    }
  }
  const trouble = files.ca === '' ? undefined : checkAuthorities(texts.ca);
  if (trouble !== undefined) return `--${flags.ca} ${files.ca}: ${trouble}`;
  if (files.cert === '') return { ...texts, notAfterMs: Infinity };
  const cert = tryRead(() => new X509Certificate(texts.cert));
  if (typeof cert === 'string')
    return `--${flags.cert} ${files.cert}: it is no PEM certificate: ${cert}`;
  const key = tryRead(() => createPrivateKey(texts.key));
  if (typeof key === 'string')
    return `--${flags.key} ${files.key}: it is no PEM private key without a passphrase: ${key}`;
  if (!cert.checkPrivateKey(key))
    return `--${flags.key} ${files.key}: it is not the key of the certificate in ${files.cert}`;
  return { ...texts, notAfterMs: Date.parse(cert.validTo) };
}

/** @returns why they can't be used */
function checkAuthorities(text: string): string | undefined {
  const authorities = text.match(PEM_CERTIFICATE) ?? [];
  if (authorities.length === 0) return 'it contains no PEM certificate';
  for (const pem of authorities) {
    const read = tryRead(() => new X509Certificate(pem));
    if (typeof read === 'string') return `a certificate in it can't be read: ${read}`;
  }
  return undefined;
}

function tryRead<T extends object>(read: () => T): T | string {
  try {
    return read();
  } catch (error) {
    return messageOf(error);
  }
}
