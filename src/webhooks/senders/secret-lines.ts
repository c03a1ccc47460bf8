import { createHash } from 'node:crypto';

/** Lines of one file: more than any installation has senders. */
const MAX_LINES = 1_000;

/** A secret of a file, and the sender that it belongs to. */
export interface SecretLine {
  readonly secret: string;
  readonly name: string;
}

/** Reads a file with one secret a line, each followed by the name of its sender if wanted; empty
 * lines and those that begin with # are skipped. Without a name, the sender is called by eight hex
 * digits of the secret's SHA-256.
 * @throws Error, which names the line and quotes nothing of it */
export function parseSecretLines(
  text: string,
): readonly (SecretLine & { readonly line: number })[] {
  const lines = text.split('\n').flatMap((raw, index) => {
    const trimmed = raw.trim();
    if (trimmed === '' || trimmed.startsWith('#')) return [];
    const [secret = '', name, ...more] = trimmed.split(/\s+/);
    const line = index + 1;
    if (more.length > 0 || (name !== undefined && !/^[\w.:/@-]{1,64}$/.test(name)))
      throw new Error(`line ${line}: write a secret, and the name of its sender without spaces`);
    const digest = createHash('sha256').update(secret).digest('hex').slice(0, 8);
    return [{ secret, name: name ?? digest, line }];
  });
  if (lines.length === 0) throw new Error('it has no line with a secret');
  if (lines.length > MAX_LINES) throw new Error(`it has more than ${MAX_LINES} lines`);
  return lines;
}
