import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { UsageError } from './flags.ts';

/* A name in a certificate is one entry of subjectAltName, and is written KIND:VALUE: DNS:name,
 * URI:spiffe://… or IP:address. Names are compared as whole texts. The common name is ignored,
 * because it has neither a kind nor rules. */

/** Reads a flag for allowed names: KIND:VALUE, or the value alone if its kind is obvious. Patterns
 * are refused, because they can match unexpected names.
 * @param flag  name without "--", for errors
 * @throws UsageError */
export function parseAllowedNames(
  texts: readonly string[],
  flag = 'tls-allowed-names',
): readonly string[] {
  return texts.map((text) => {
    const [, kind = kindOf(text), value = text] = /^(DNS|URI|IP):(?!\/\/)(.+)$/.exec(text) ?? [];
    if (value.includes('*'))
      throw new UsageError(`--${flag}: "${text}" is a pattern; write each name in full`);
    if (kind === 'IP' && isIP(value) === 0)
      throw new UsageError(`--${flag}: "${value}" is not an IP address`);
    if (kind === 'URI' && !/^[a-z][a-z0-9+.-]*:/i.test(value))
      throw new UsageError(`--${flag}: "${value}" is not a URI`);
    return canonicalName(kind, value);
  });
}

function kindOf(text: string): string {
  if (isIP(text) !== 0) return 'IP';
  return text.includes('://') ? 'URI' : 'DNS';
}

const QUOTED = /"(?:[^"\\]|\\.)*"/g;

/** Reads a certificate's subjectAltName in Node's notation: `DNS:a, IP Address:::1, URI:b://c`.
 * Skips other kinds (email, directory names), and values that Node has quoted, because they contain
 * commas or quotes, as no allowed name does. */
export function readAlternativeNames(subjectAltName = ''): readonly string[] {
  const plain = subjectAltName.replaceAll(QUOTED, '');
  if (plain.includes('"')) return [];
  return plain.split(', ').flatMap((entry) => {
    const [, label = '', value = ''] = /^(DNS|URI|IP Address):(.+)$/.exec(entry) ?? [];
    return value === '' ? [] : [canonicalName(label.replace(' Address', ''), value)];
  });
}

/** DNS names in lower case, IP addresses in their short form. */
function canonicalName(kind: string, value: string): string {
  if (kind === 'DNS') return `DNS:${value.toLowerCase()}`;
  // OpenSSL prints IPv6 addresses in full; people write them in short forms.
  if (kind === 'IP' && isIP(value) === 6)
    return `IP:${new URL(`http://[${value}]`).hostname.slice(1, -1)}`;
  return `${kind}:${value}`;
}

/** Reads names and end from the peer's certificate; no names without one.
 *
 * Does not use getPeerX509Certificate, which in Node 20 leaks 4 kB per connection: a peer that
 * connects again and again could end the process.
 * @returns `endMs`: when it ends, Unix ms */
export function peerCertificate(socket: TLSSocket): {
  readonly names: readonly string[];
  readonly endMs: number;
} {
  // Without a certificate it is empty or null, which the types lack.
  const certificate: Partial<ReturnType<TLSSocket['getPeerCertificate']>> | null =
    socket.getPeerCertificate();
  const { subjectaltname, valid_to: validTo } = certificate ?? {};
  if (validTo === undefined) return { names: [], endMs: 0 };
  return { names: readAlternativeNames(subjectaltname), endMs: Date.parse(validTo) };
}
