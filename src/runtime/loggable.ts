// Decides what gets into the log. Callers log whatever libraries throw and make, so only the kinds
// of values that are named here are copied.
import { types } from 'node:util';
import type { Fields } from './json.ts';
import { shorten } from './printable.ts';

const MAX_DEPTH = 6;
const MAX_ERRORS = 20;
const MAX_CHARACTERS = 8_192;
/** Replaces a secret, as in csi-lib-utils protosanitizer/protosanitizer.go StripSecrets. */
export const STRIPPED = '***stripped***';
const PRIVATE_KEY =
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g;
/** Names of fields below the first level whose value is never logged: headers and login options. */
const SECRET_FIELD =
  /^((proxy-)?authorization|(set-)?cookie|.*password|passphrase|.*secrets?|.*token|auth)$/i;

/** Copies a value for the log: texts (long ones cut), numbers, plain objects and lists. Of an
 * error, copies only type, message, stack, code, cause and errors: ioredis, for example, adds the
 * arguments of the refused command, and so AUTH's password. Replaces any other object by the name
 * of its class, since a client or a request contains logins.
 * @param hasStacks  whether errors keep their stack */
export function toLoggable(value: unknown, hasStacks = true, depth = 0): unknown {
  if (typeof value !== 'object' || value === null) return loggableScalar(value);
  if (value instanceof Date || value instanceof URL) return strikeCredentials(value.toJSON());
  if (depth > MAX_DEPTH) return '[…]';
  if (isError(value)) return loggableError(value, hasStacks, depth);
  if (Array.isArray(value)) return value.map((item) => toLoggable(item, hasStacks, depth + 1));
  return isPlain(value) ? loggableFields(value, hasStacks, depth) : `[${className(value)}]`;
}

function loggableScalar(value: unknown): unknown {
  if (typeof value === 'string') return loggableText(value);
  return typeof value === 'bigint' ? value.toString() : value;
}

function loggableText(text: string): string {
  return shorten(strikeCredentials(text), MAX_CHARACTERS);
}

/** Removes private keys from a text, and the login from every URL. */
export function strikeCredentials(text: string): string {
  const struck = text.includes('://') ? text.replaceAll(/[^\s"'<>]+/g, strikeLogins) : text;
  return struck.includes('PRIVATE KEY') ? struck.replaceAll(PRIVATE_KEY, STRIPPED) : struck;
}

/** Removes everything from the first login to the last @ of a word, because a password that is not
 * encoded may contain any character. */
function strikeLogins(word: string): string {
  const end = word.lastIndexOf('@');
  for (let at = word.indexOf('://'); at !== -1 && at < end; at = word.indexOf('://', at + 3)) {
    const login = word.slice(at + 3, end);
    // The placeholder in sutler's own messages is no login.
    if (login === '[user:password' && word[end + 1] === ']') return word;
    const path = login.search(/[/?#]/);
    // Behind a host without a port is a path, which may contain an @.
    if (path === -1 || login.slice(0, path).includes(':'))
      return `${word.slice(0, at + 3)}${STRIPPED}${word.slice(end)}`;
  }
  return word;
}

function isError(value: object): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function className(value: object): string {
  return typeof value.constructor === 'function' ? value.constructor.name : 'object';
}

function loggableError(error: Error, hasStacks: boolean, depth: number): unknown {
  const { message, stack, code, cause, errors } = error as unknown as Fields;
  return {
    type: className(error),
    message: loggableText(String(message)),
    ...(hasStacks ? { stack: loggableText(String(stack)) } : {}),
    ...(typeof code === 'string' || typeof code === 'number' ? { code: toLoggable(code) } : {}),
    ...(cause === undefined ? {} : { cause: toLoggable(cause, hasStacks, depth + 1) }),
    ...(Array.isArray(errors)
      ? {
          errors: errors.slice(0, MAX_ERRORS).map((each) => toLoggable(each, hasStacks, depth + 1)),
        }
      : {}),
  };
}

function loggableFields(fields: object, hasStacks: boolean, depth: number): unknown {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      depth > 0 && SECRET_FIELD.test(name) ? STRIPPED : toLoggable(value, hasStacks, depth + 1),
    ]),
  );
}
