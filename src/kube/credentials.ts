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
  /** Authorization and impersonation, sent with each request. */
  readonly headers: Readonly<Record<string, string | string[]>>;
}

/** The address of the API server and the credentials for it. */
export interface ClusterAccess {
  /** May have a path (https://host/k8s/clusters/x). */
  readonly server: URL;
  /** For logs: which kubeconfig and context, or "in-cluster". */
  readonly source: string;
  /** HTTP proxy that tunnels to the server. */
  readonly proxy?: URL | undefined;
  /** Name of the kubeconfig's cluster if its server's certificate is not checked
   * (insecure-skip-tls-verify). */
  readonly unverifiedCluster?: string | undefined;
  readonly credentials: CredentialSource;
}

/** Returns the credentials for one request. Unchanged parts are the same objects as before.
 * @param refused  credentials that the server refused with a 401; their source is read again
 * @throws UsageError if they expired and can't be renewed */
export type CredentialSource = (refused?: Credentials) => Promise<Credentials>;

export const NO_CREDENTIALS: Credentials = { tls: { skipVerify: false }, headers: {} };

/** Minimum time between two refreshes after a 401. Otherwise each request might cause a login. */
const REFRESH_AFTER_MS = 5_000;

/** Reads a file and trims its content.
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

/** Reads credentials now, and again when they are older than `maxAgeMs` or the server refused them.
 * Concurrent requests share one read. A new certificate is used only with its own key, because the
 * two files may be replaced one after the other.
 * @param read            gets whether the server refused the last credentials
 * @param o.where         for errors
 * @param o.failsIfStale  whether to throw errors of later reads; otherwise the last good
 *   credentials stay in use
 * @throws UsageError if the first credentials can't be read or used */
export async function renewCredentials(
  read: (isRefused: boolean) => Promise<Credentials>,
  o: {
    readonly where: string;
    readonly maxAgeMs: number;
    readonly nowMs: () => number;
    readonly failsIfStale?: boolean;
  },
): Promise<CredentialSource> {
  let current = await read(false);
  const fault = faultOf(current.tls);
  if (fault !== undefined) throw new UsageError(`${o.where}: ${fault}`);
  let readMs = o.nowMs();
  let refusedMs = -Infinity;
  let running: Promise<Credentials> | undefined;

  const readAgain = async (isRefused: boolean): Promise<Credentials> => {
    try {
      const { tls, headers } = await read(isRefused);
      if (!isDeepStrictEqual(headers, current.headers)) current = { ...current, headers };
      if (!isDeepStrictEqual(tls, current.tls) && faultOf(tls) === undefined)
        current = { ...current, tls };
    } catch (error) {
      if (o.failsIfStale === true) throw error;
    } finally {
      running = undefined;
    }
    readMs = o.nowMs();
    return current;
  };

  return (refused) => {
    if (running !== undefined) return running;
    const nowMs = o.nowMs();
    const isRefused = refused === current && nowMs - refusedMs >= REFRESH_AFTER_MS;
    if (!isRefused && nowMs - readMs < o.maxAgeMs) return Promise.resolve(current);
    if (isRefused) refusedMs = nowMs;
    return (running = readAgain(isRefused));
  };
}

/** Says why the material can't be used; undefined if it can. */
function faultOf({ ca, cert, key }: TlsMaterial): string | undefined {
  if ((cert === undefined) !== (key === undefined))
    return 'client-certificate and client-key must be given together';
  try {
    // Node would read such a text as an empty list of authorities.
    if (ca !== undefined && !ca.includes('-----BEGIN')) throw new Error('the CA is not PEM');
    createSecureContext({ ca, cert, key });
    return undefined;
  } catch (cause) {
    return (
      `certificate, key or CA can't be used: ${reasonOf(cause)}; ` +
      'check that they are PEM and that the key belongs to the certificate'
    );
  }
}

/** Parses the URL of an API server.
 * @param protocol  used if the text has none
 * @throws UsageError */
export function parseServer(where: string, text: string, protocol: 'http:' | 'https:'): URL {
  const url = parseHttpUrl(/^[a-z]+:\/\//i.test(text) ? text : `${protocol}//${text}`);
  if (url === undefined)
    throw new UsageError(`${where}: "${text}" is not a server; write https://host:port`);
  return url;
}

/** @returns undefined if the text is not an http or https URL */
export function parseHttpUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && ['http:', 'https:'].includes(url.protocol) ? url : undefined;
}

/** The first line of an error's message. */
export function reasonOf(error: unknown): string {
  return messageOf(error).split('\n', 1)[0] ?? '';
}
