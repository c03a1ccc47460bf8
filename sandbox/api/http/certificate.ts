import { createSign, generateKeyPairSync, randomBytes } from 'node:crypto';
import {
  bits,
  boolean,
  explicit,
  implicit,
  integer,
  octets,
  oid,
  sequence,
  setOf,
  text,
  utcTime,
} from './der.ts';

/** A certificate and its key as PEM. It is self-signed, so clients must trust it as an authority.
 */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** A self-signed ECDSA P-256 certificate for the loopback names, valid for 30 days.
 *
 * TLS is needed because kubectl uses no credentials with a plain http server. The certificate is
 * encoded here because Node can't create one and the sandbox must not need `openssl` on PATH. */
export function makeCertificate(nowMs: number): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = sequence(oid('1.2.840.10045.4.3.2')); // ecdsa-with-SHA256
  const name = sequence(
    setOf(sequence(oid('2.5.4.3'), text(`sutler sandbox ${randomBytes(4).toString('hex')}`))),
  );
  const extension = (id: string, critical: boolean, value: Uint8Array) =>
    sequence(oid(id), ...(critical ? [boolean(true)] : []), octets(value));
  const names = sequence(
    ...['localhost', 'kubernetes.default', 'kubernetes.default.svc'].map((dns) =>
      implicit(2, Buffer.from(dns)),
    ),
    implicit(7, Buffer.from([127, 0, 0, 1])),
    implicit(7, Buffer.concat([Buffer.alloc(15), Buffer.from([1])])),
  );
  const body = sequence(
    explicit(0, integer(Buffer.from([2]))), // version 3
    integer(Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    algorithm,
    name,
    sequence(utcTime(new Date(nowMs - DAY_MS)), utcTime(new Date(nowMs + 30 * DAY_MS))),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    explicit(
      3,
      sequence(
        // basicConstraints: it is its own authority
        extension('2.5.29.19', true, sequence(boolean(true))),
        // keyUsage: digitalSignature, keyCertSign
        extension('2.5.29.15', true, bits(Buffer.from([0x84]), 2)),
        // extKeyUsage: serverAuth
        extension('2.5.29.37', false, sequence(oid('1.3.6.1.5.5.7.3.1'))),
        // subjectAltName
        extension('2.5.29.17', false, names),
      ),
    ),
  );
  const signature = createSign('sha256').update(body).sign(privateKey);
  const certificate = sequence(body, algorithm, bits(signature));
  return {
    cert: pem('CERTIFICATE', certificate),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}

function pem(label: string, der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}
