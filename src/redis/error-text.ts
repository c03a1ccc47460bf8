import { messageOf } from '../runtime/error-message.ts';

/** What went wrong with Redis and what to do about it, in one line; never a password.
 * @param address  host and port, as RedisLink has it
 * @param usesTls  whether the connection would have TLS */
export function describeRedisError(address: string, error: unknown, usesTls = false): string {
  // The delay grows, and a line that changes would be logged each time.
  const message = messageOf(error).replace(/ Retrying from scratch after \d+ms\./, '');
  const refusal = findRefusal(message);
  if (refusal !== undefined) {
    const { fix, isLogin } = refusal;
    // The name and line of the script that failed help nobody.
    return isLogin === true
      ? `Redis at ${address} refuses the login (${message.split(/[\s:]/, 1).join('')}): ${fix}`
      : `Redis at ${address}: ${message.replace(/\.?( script: .*)?$/, '')}: ${fix}`;
  }
  if (isRefusal(error)) return `Redis at ${address}: ${message}`;
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  const fault = findTlsFault(`${String(code)} ${message}`);
  if (fault !== undefined) return `Redis at ${address}: ${fault(message)}`;
  const reason = typeof code === 'string' ? code : message;
  const fix =
    // A server without TLS waits for the rest of what it takes for a command.
    usesTls && /ETIMEDOUT/.test(reason)
      ? 'start it, correct --redis-url, or leave TLS out where it has none ' +
        '(redis://, or --redis-sentinel-plaintext)'
      : 'start it, or correct --redis-url';
  return `Redis at ${address} can't be reached (${reason}): ${fix}`;
}

/** Whether Redis answered the command, with an error. */
export function isRefusal(error: unknown): boolean {
  const isReply = error instanceof Error && error.name === 'ReplyError';
  return isReply || findRefusal(messageOf(error)) !== undefined;
}

interface Refusal {
  /** Found anywhere: when a script fails, older versions put the error word in the middle. */
  readonly word: RegExp;
  readonly isLogin?: true;
  readonly fix: string;
}

function findTlsFault(text: string): ((message: string) => string) | undefined {
  return TLS_FAULTS.find(([word]) => word.test(text))?.[1];
}

/** By the codes of Node.js and, since ioredis reports a Sentinel's error by its message only, by
 * the messages of OpenSSL. */
const TLS_FAULTS: readonly (readonly [RegExp, (message: string) => string])[] = [
  [
    /SELF_SIGNED|UNABLE_TO_|self.signed certificate|unable to (verify|get)/,
    () =>
      'no authority that is known here signed its certificate: name that authority’s file with ' +
      '--redis-tls-ca',
  ],
  [
    /ALTNAME_INVALID|does not match certificate/,
    (message) =>
      `its certificate has another name (${message.replace(/^.*?(Hostname\/IP)/, '$1')}): ` +
      'give the name that it has with --redis-tls-server-name, or correct --redis-url',
  ],
  [/CERT_HAS_EXPIRED|certificate has expired/, () => 'its certificate has expired: renew that'],
  [
    /WRONG_VERSION_NUMBER|wrong version number|before secure TLS connection/,
    () =>
      'it answers without TLS: name its TLS port in --redis-url, or leave TLS out ' +
      '(redis://, or --redis-sentinel-plaintext)',
  ],
  [
    /SSL.*ALERT|ssl.*alert/i,
    (message) =>
      `it refuses our certificate (${alertIn(message)}): give one that its authority signed with ` +
      '--redis-tls-cert and --redis-tls-key',
  ],
];

function alertIn(message: string): string {
  return /alert ([a-z ]+)/i.exec(message)?.[1] ?? 'TLS alert';
}

function findRefusal(message: string): Refusal | undefined {
  return REFUSALS.find(({ word }) => word.test(message));
}

const NAME_THE_MASTER = 'name the master in --redis-url, or the Sentinels, which know it';

const REFUSALS: readonly Refusal[] = [
  {
    word: /sentinels are unreachable.*\b(WRONGPASS|NOAUTH)\b/,
    fix: 'correct --redis-sentinel-username and --redis-sentinel-password',
  },
  {
    // Older versions begin the refusal of a script with another text.
    word: /\bNOPERM\b|can't run this command or subcommand/,
    fix: 'grant its user the missing permission',
  },
  {
    word: /^(WRONGPASS|NOAUTH)\b|invalid (username|password)/i,
    isLogin: true,
    fix: 'correct user and password in --redis-url or REDIS_URL',
  },
  { word: /\bOOM\b/, fix: 'raise maxmemory' },
  { word: /\bMISCONF\b/, fix: 'check its disk' },
  { word: /\b(READONLY|MASTERDOWN)\b/, fix: NAME_THE_MASTER },
  { word: /\bLOADING\b/, fix: 'it goes on by itself when its data is read' },
  { word: /\bCLUSTERDOWN\b/, fix: 'repair the cluster, so that a master serves every slot' },
];
