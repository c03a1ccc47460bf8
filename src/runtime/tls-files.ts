import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Clock } from './clock.ts';
import { UsageError } from './flags.ts';
import type { Logger } from './log.ts';

/** Paths of one side's TLS material, PEM each. Whoever issues it may replace the files at any time.
 */
export interface TlsFiles {
  /** Certificates of the authorities that may have signed the other side's. */
  readonly ca: string;
  /** Own certificate, intermediates behind it. */
  readonly cert: string;
  readonly key: string;
}

/** What the files held when they last fitted together. */
export interface TlsMaterial {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** When the own certificate ends, Unix milliseconds. */
  readonly notAfterMs: number;
}

/** TLS material that may be replaced while it is in use. */
export interface TlsSource {
  readonly current: TlsMaterial;
  /** Hears of each replacement, after `current` has changed.
   * @returns stops hearing */
  onChange(listener: (next: TlsMaterial, before: TlsMaterial) => void): () => void;
}

export interface WatchedTlsFiles extends TlsSource {
  /** Why the files as they are now can't be used, or that the certificate in use has ended;
   * undefined when all is well. */
  readonly trouble: string | undefined;
  close(): void;
}

export interface WatchTlsOptions {
  readonly files: TlsFiles;
  /** The flags that named the files, for errors. */
  readonly flags: TlsFiles;
  readonly clock: Clock;
  readonly log: Logger;
  /** How often the files are read; 10 s where absent. */
  readonly intervalMs?: number;
}

/** Reads the files, and again every 10 s. They are read rather than watched by inotify, since a
 * Secret's files are symbolic links into a folder that is swapped, and some volumes tell nothing.
 * Files that do not fit together (one replaced, the other not yet) change nothing.
 * @throws UsageError when they can't be used at the start */
export async function watchTlsFiles(options: WatchTlsOptions): Promise<WatchedTlsFiles> {
  const { clock, log, files } = options;
  const first = await readMaterial(options);
  if (typeof first === 'string') throw new UsageError(first);
  let current = first;
  let wrong: string | undefined;
  const listeners = new Set<(next: TlsMaterial, before: TlsMaterial) => void>();
  const closed = new AbortController();

  const look = async (): Promise<void> => {
    const read = await readMaterial(options);
    if (closed.signal.aborted) return;
    if (typeof read === 'string') {
      if (read !== wrong)
        log.warn({ reason: read }, 'the TLS files can not be used: going on with the ones before');
      wrong = read;
      return;
    }
    wrong = undefined;
    if (read.ca === current.ca && read.cert === current.cert && read.key === current.key) return;
    const before = current;
    current = read;
    log.info(
      { cert: files.cert, notAfter: new Date(read.notAfterMs).toISOString() },
      'TLS files were replaced: in use from now on',
    );
    for (const listener of listeners) listener(read, before);
  };
  const loop = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(options.intervalMs ?? 10_000, closed.signal);
      if (closed.signal.aborted) return;
      await look();
    }
  };
  void loop();
  return {
    get current() {
      return current;
    },
    get trouble() {
      if (clock.nowMs() >= current.notAfterMs)
        return `the certificate in ${files.cert} ended at ${new Date(current.notAfterMs).toISOString()}: renew it`;
      return wrong;
    },
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close: () => closed.abort(),
  };
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** The files' content, or what is wrong with it in one line. */
async function readMaterial({ files, flags }: WatchTlsOptions): Promise<TlsMaterial | string> {
  const texts = { ca: '', cert: '', key: '' };
  for (const part of ['ca', 'cert', 'key'] as const) {
    try {
      texts[part] = await readFile(files[part], 'utf8');
    } catch (error) {
      return `--${flags[part]} ${files[part]}: ${messageOf(error)}`;
    }
  }
  const authorities = texts.ca.match(PEM_CERTIFICATE) ?? [];
  if (authorities.length === 0) return `--${flags.ca} ${files.ca}: it holds no PEM certificate`;
  for (const pem of authorities) {
    const read = readable(() => new X509Certificate(pem));
    if (typeof read === 'string')
      return `--${flags.ca} ${files.ca}: a certificate in it can't be read: ${read}`;
  }
  const cert = readable(() => new X509Certificate(texts.cert));
  if (typeof cert === 'string')
    return `--${flags.cert} ${files.cert}: it is no PEM certificate: ${cert}`;
  const key = readable(() => createPrivateKey(texts.key));
  if (typeof key === 'string')
    return `--${flags.key} ${files.key}: it is no PEM private key without a passphrase: ${key}`;
  if (!cert.checkPrivateKey(key))
    return `--${flags.key} ${files.key}: it is not the key of the certificate in ${files.cert}`;
  return { ...texts, notAfterMs: Date.parse(cert.validTo) };
}

function readable<T extends object>(read: () => T): T | string {
  try {
    return read();
  } catch (error) {
    return messageOf(error);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
