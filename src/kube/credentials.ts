import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';

/** PEM texts and settings for TLS. */
export interface TlsMaterial {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly servername?: string | undefined;
  readonly skipVerify: boolean;
}

export interface Credentials {
  readonly tls: TlsMaterial;
  /** Of each request: authorization and impersonation. */
  readonly headers: Readonly<Record<string, string | string[]>>;
}

/** Credentials that can change at run time. */
export interface RenewedCredentials {
  /** To be asked for each request. Parts that have not changed are the same objects as before.
   * @throws UsageError if they expired and can't be renewed */
  credentials(): Promise<Credentials>;
  /** Called after a 401: reads the credentials from their source again. */
  refresh(): Promise<void>;
}

/** The address of the API server and the credentials for it. */
export interface ClusterAccess extends RenewedCredentials {
  /** May have a path (https://host/k8s/clusters/x). */
  readonly server: URL;
  /** For logs: which kubeconfig and context, or "in-cluster". */
  readonly source: string;
  /** HTTP proxy that tunnels to the server. */
  readonly proxy?: URL | undefined;
  /** Name of the kubeconfig's cluster if its server's certificate is not checked
   * (insecure-skip-tls-verify). */
  readonly unverifiedCluster?: string | undefined;
}

export const NO_CREDENTIALS: Credentials = { tls: { skipVerify: false }, headers: {} };

/** Least time between two refreshes, so that refusals that persist start no login per request. */
const REFRESH_AFTER_MS = 5_000;

/** The trimmed content of a file.
 * @throws UsageError if it is empty or can't be read */
export async function readCredential(path: string, where: string, hint: string): Promise<string> {
  try {
    const content = (await readFile(path, 'utf8')).trim();
    if (content === '') throw new Error('the file is empty');
    return content;
  } catch (cause) {
    throw new UsageError(`${where}: ${path}: ${reasonOf(cause)}; ${hint}`, { cause });
  }
}

/** Reads credentials now, and again when they are older than `maxAgeMs` or were refused. Requests
 * that come meanwhile share one read. A later certificate is used only with its key: of the two
 * files, one may have been replaced and the other not yet.
 * @param read            its argument: whether the server refused the last ones
 * @param o.where         for errors
 * @param o.failsIfStale  whether an error of a later read is thrown; otherwise the last good
 *                        credentials stay in use
 * @throws UsageError if the first ones can't be read or used */
export async function renewCredentials(
  read: (isRefused: boolean) => Promise<Credentials>,
  o: {
    readonly where: string;
    readonly maxAgeMs: number;
    readonly nowMs: () => number;
    readonly failsIfStale?: boolean;
  },
): Promise<RenewedCredentials> {
  let current = await read(false);
  checkTls(o.where, current.tls);
  let readMs = o.nowMs();
  let refreshedMs = -Infinity;
  let running: Promise<Credentials> | undefined;

  const readAgain = async (isRefused: boolean): Promise<Credentials> => {
    try {
      const { tls, headers } = await read(isRefused);
      if (!isDeepStrictEqual(headers, current.headers)) current = { ...current, headers };
      if (!isDeepStrictEqual(tls, current.tls) && isUsable(o.where, tls))
        current = { ...current, tls };
    } catch (error) {
      if (o.failsIfStale === true) throw error;
    } finally {
      running = undefined;
    }
    readMs = o.nowMs();
    return current;
  };

  return {
    credentials() {
      if (running !== undefined) return running;
      if (o.nowMs() - readMs < o.maxAgeMs) return Promise.resolve(current);
      return (running = readAgain(false));
    },
    async refresh() {
      if (o.nowMs() - refreshedMs < REFRESH_AFTER_MS) return;
      refreshedMs = o.nowMs();
      await running?.catch(() => undefined);
      await (running = readAgain(true));
    },
  };
}

function checkTls(where: string, { ca, cert, key }: TlsMaterial): void {
  if ((cert === undefined) !== (key === undefined)) {
    const half = cert
      ? 'a client-certificate but no client-key'
      : 'a client-key but no client-certificate';
    throw new UsageError(`${where}: its user has ${half}; give both`);
  }
  try {
    // Node takes such a text for an empty list.
    if (ca !== undefined && !ca.includes('-----BEGIN')) throw new Error('the CA is not PEM');
    createSecureContext({ ca, cert, key });
  } catch (cause) {
    throw new UsageError(
      `${where}: certificate, key or CA can't be used: ${reasonOf(cause)}; ` +
        'check that they are PEM and that the key belongs to the certificate',
      { cause },
    );
  }
}

function isUsable(where: string, tls: TlsMaterial): boolean {
  try {
    checkTls(where, tls);
    return true;
  } catch {
    return false;
  }
}

/** Parses the URL of an API server.
 * @param protocol  where the text has none
 * @throws UsageError */
export function parseServer(where: string, text: string, protocol: 'http:' | 'https:'): URL {
  const url = parseHttpUrl(/^[a-z]+:\/\//i.test(text) ? text : `${protocol}//${text}`);
  if (url === undefined)
    throw new UsageError(`${where}: "${text}" is not a server; write https://host:port`);
  return url;
}

/** @returns undefined for other protocols, and what is no URL */
export function parseHttpUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && ['http:', 'https:'].includes(url.protocol) ? url : undefined;
}

/** The first line of an error's message. */
export function reasonOf(error: unknown): string {
  return messageOf(error).split('\n', 1)[0] ?? '';
}
