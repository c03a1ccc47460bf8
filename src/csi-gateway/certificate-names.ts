import { isIP } from 'node:net';
import { UsageError } from '../runtime/flags.ts';

/** One name that a certificate gives its owner: an entry of subjectAltName. The common name is not
 * one; it has no type and no rules. */
export interface CertificateName {
  readonly kind: 'DNS' | 'URI' | 'IP';
  /** DNS in lower case, IP in one spelling. */
  readonly value: string;
}

/** Reads --tls-allowed-names: `DNS:name`, `URI:spiffe://…`, `IP:address`, or the bare value where
 * its kind is plain to see. Names are compared whole: a pattern would let in whoever finds a name
 * that it forgot.
 * @throws UsageError */
export function parseAllowedNames(
  flag: string,
  texts: readonly string[],
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
    return { kind, value: canonical(kind, value) };
  });
}

/** Names in a certificate's subjectAltName as Node prints it: `DNS:a, IP Address:::1,
 * URI:"spiffe://a, b"`. Kinds that nobody is allowed by (email, directory names, others) are left
 * out, and so is everything behind a text that can't be read. */
export function readAlternativeNames(
  subjectAltName: string | undefined,
): readonly CertificateName[] {
  const names: CertificateName[] = [];
  const entry = /([A-Za-z][A-Za-z ]*):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y;
  const text = subjectAltName ?? '';
  while (entry.lastIndex < text.length) {
    const [, label = '', raw = ''] = entry.exec(text) ?? [];
    if (label === '') break;
    const value = unquoted(raw);
    const kind = label === 'IP Address' ? 'IP' : label;
    if (value !== undefined && (kind === 'DNS' || kind === 'URI' || kind === 'IP'))
      names.push({ kind, value: canonical(kind, value) });
  }
  return names;
}

/** The first of a certificate's names that is allowed. */
export function findAllowedName(
  names: readonly CertificateName[],
  allowed: readonly CertificateName[],
): CertificateName | undefined {
  return names.find((name) =>
    allowed.some(({ kind, value }) => kind === name.kind && value === name.value),
  );
}

/** As the flag spells it. */
export function formatName({ kind, value }: CertificateName): string {
  return `${kind}:${value}`;
}

function kindOf(text: string): CertificateName['kind'] {
  if (isIP(text) !== 0) return 'IP';
  return text.includes('://') ? 'URI' : 'DNS';
}

/** Node quotes, as JSON does, values in which a comma could pass for the next entry. */
function unquoted(raw: string): string | undefined {
  if (!raw.startsWith('"')) return raw;
  try {
    const value: unknown = JSON.parse(raw);
    return typeof value === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}

function canonical(kind: CertificateName['kind'], value: string): string {
  if (kind === 'DNS') return value.toLowerCase();
  // One spelling for each IPv6 address; OpenSSL prints it in full, people write it short.
  if (kind === 'IP' && isIP(value) === 6) return new URL(`http://[${value}]`).hostname.slice(1, -1);
  return value;
}
