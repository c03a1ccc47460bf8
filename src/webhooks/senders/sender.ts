/** Who sends events, by what it has shown. Limits count by it. */
export interface Sender {
  readonly kind: 'certificate' | 'token' | 'signature' | 'network';
  /** The allowed name of the certificate, the name of the token or key, or the network address. */
  readonly name: string;
}

/** A text that no other sender has. */
export function senderId({ kind, name }: Sender): string {
  return `${kind} ${name}`;
}
