import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { UsageError } from './flags.ts';
import { parseJson } from './json.ts';

/** A name in a certificate: one entry of subjectAltName. The common name is ignored, because it has
 * neither a type nor rules. */
export interface CertificateName {
  readonly kind: 'DNS' | 'URI' | 'IP';
  /** DNS names in lower case, IP addresses in their canonical form. */
  readonly value: string;
}

/** Reads a flag for allowed names: `DNS:name`, `URI:spiffe://…`, `IP:address`, or the value alone
 * if its kind is obvious. Patterns are refused, because they can match unexpected names.
 * @param flag  name without "--", for errors
 * @throws UsageError */
export function parseAllowedNames(
  texts: readonly string[],
  flag = 'tls-allowed-names',
): readonly CertificateName[] {
  return texts.map((text) => {
    const typed = /^(DNS|URI|IP):(?!\/\/)(.+)$/.exec(text);
    const kind = (typed?.[1] as CertificateName['kind'] | undefined) ?? kindOf(text);
    const value = typed?.[2] ?? text;
    if (value.includes('*'))
      throw new UsageError(`--${flag}: "${text}" is a pattern; write each name in full`);
    if (kind === 'IP' && isIP(value) === 0)
      throw new UsageError(`--${flag}: "${value}" is not an IP address`);
    if (kind === 'URI' && !/^[a-z][a-z0-9+.-]*:/i.test(value))
      throw new UsageError(`--${flag}: "${value}" is not a URI`);
    return { kind, value: canonicalize(kind, value) };
  });
}

/** Reads a certificate's subjectAltName in Node's notation: `DNS:a, IP Address:::1,
 * URI:"spiffe://a, b"`. Other kinds (email, directory names) are skipped. Reading stops at an entry
 * that can't be parsed. */
export function readAlternativeNames(
  subjectAltName: string | undefined,
): readonly CertificateName[] {
  const names: CertificateName[] = [];
  const entry = /([A-Za-z][A-Za-z ]*):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y;
  const text = subjectAltName ?? '';
  while (entry.lastIndex < text.length) {
    const [, label = '', raw = ''] = entry.exec(text) ?? [];
    if (label === '') break;
    const value = unquote(raw);
    const kind = label === 'IP Address' ? 'IP' : label;
    if (value !== undefined && (kind === 'DNS' || kind === 'URI' || kind === 'IP'))
      names.push({ kind, value: canonicalize(kind, value) });
  }
  return names;
}

/** What the certificate of a connection's other side says.
 *
 * Not from getPeerX509Certificate: with Node 20 each connection whose certificate is read so keeps
 * 4 kB of memory for good, so that whoever connects again and again ends the process. */
export interface PeerCertificate {
  readonly names: readonly CertificateName[];
  /** A text that differs between subjects. */
  readonly subject: string;
  /** When it ends, Unix ms. */
  readonly endMs: number;
}

/** @returns undefined without a certificate */
export function peerCertificate(socket: TLSSocket): PeerCertificate | undefined {
  // The types lack that it is empty, or null, where there is none.
  const certificate: Partial<ReturnType<TLSSocket['getPeerCertificate']>> | null =
    socket.getPeerCertificate();
  const { raw, subjectaltname, subject, valid_to: validTo = '' } = certificate ?? {};
  if (raw === undefined) return undefined;
  const names = readAlternativeNames(subjectaltname);
  return { names, subject: JSON.stringify(subject), endMs: Date.parse(validTo) };
}

/** The first of a certificate's names that is in `allowed`, compared whole and by kind. */
export function findAllowedName(
  names: readonly CertificateName[],
  allowed: readonly CertificateName[],
): CertificateName | undefined {
  return names.find((name) =>
    allowed.some(({ kind, value }) => kind === name.kind && value === name.value),
  );
}

/** A name in the notation of the flag. */
export function formatName({ kind, value }: CertificateName): string {
  return `${kind}:${value}`;
}

function kindOf(text: string): CertificateName['kind'] {
  if (isIP(text) !== 0) return 'IP';
  return text.includes('://') ? 'URI' : 'DNS';
}

/** Node writes values that could be taken for several entries as JSON strings. */
function unquote(raw: string): string | undefined {
  if (!raw.startsWith('"')) return raw;
  const value = parseJson(raw);
  return typeof value === 'string' ? value : undefined;
}

function canonicalize(kind: CertificateName['kind'], value: string): string {
  if (kind === 'DNS') return value.toLowerCase();
  // OpenSSL prints IPv6 addresses in full; people write them in short forms.
  if (kind === 'IP' && isIP(value) === 6) return new URL(`http://[${value}]`).hostname.slice(1, -1);
  return value;
}
