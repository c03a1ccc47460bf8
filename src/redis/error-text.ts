import { messageOf } from '../runtime/error-message.ts';

/** The fix if Redis is a node of a cluster. */
export const NO_CLUSTER =
  'Redis Cluster is not supported: name a Redis without cluster mode in --redis-url, ' +
  'or the Sentinels of one';

/** Redis' answer if its users file denies a command. In scripts, Redis 7.0 uses the second form. */
const DENIAL = /\bNOPERM\b|script can't (run this command|access at least one)/;

/** The fix for an error that Redis answers. The error of a script has the word in its middle. */
const REFUSALS: readonly (readonly [word: RegExp, fix: string])[] = [
  [DENIAL, 'grant its user the missing permission (k8s/redis/users.acl has what each needs)'],
  [
    /sentinels are unreachable.*\b(WRONGPASS|NOAUTH)\b/,
    'correct --redis-sentinel-username and --redis-sentinel-password',
  ],
  [/\b(WRONGPASS|NOAUTH)\b/, 'correct user and password in --redis-url or REDIS_URL'],
  [/\bOOM\b/, 'raise maxmemory'],
  [/\bMISCONF\b/, 'check its disk'],
  [/\bNOREPLICAS\b/, 'start its replicas, or correct min-replicas-to-write'],
  [/\b(READONLY|MASTERDOWN)\b/, 'name the master in --redis-url, or the Sentinels'],
  [/\b(MOVED|ASK|CROSSSLOT|CLUSTERDOWN)\b/, NO_CLUSTER],
];

/** The fix for a failed connection, by the codes of Node.js and the messages of OpenSSL. */
const FAULTS: readonly (readonly [word: RegExp, fix: string])[] = [
  [/self.signed|unable to (verify|get)/, 'name the authority’s file with --redis-tls-ca'],
  [/does not match certificate/, 'give a name in the certificate with --redis-tls-server-name'],
  [/certificate has expired/, 'renew its certificate'],
  [/wrong version|secure TLS/, 'name its TLS port in --redis-url, or write redis:// without TLS'],
  [/ssl.*alert/i, 'give a certificate with --redis-tls-cert and --redis-tls-key'],
  [/Socket timeout/, 'check its load and its host'],
];

/** Says in one line what is wrong with Redis and what to do about it. Omits passwords.
 * @param address  host and port, as RedisLink has it */
export function describeRedisError(address: string, error: unknown): string {
  // Removes the growing delay, since each new line would be logged.
  const message = messageOf(error).replace(
    / Retrying from scratch after \d+ms\.|\.?( script: .*)?$/g,
    '',
  );
  const fixIn = (texts: typeof FAULTS) => texts.find(([word]) => word.test(message))?.[1];
  const refusalFix = fixIn(REFUSALS);
  if (refusalFix !== undefined) return `Redis at ${address}: ${message}: ${refusalFix}`;
  if (isRefusal(error)) return `Redis at ${address}: ${message}`;
  const fix = fixIn(FAULTS) ?? 'start it, or correct --redis-url';
  const isOfSystem = error instanceof Error && 'syscall' in error && 'code' in error;
  const reason = isOfSystem ? String(error.code) : message;
  return `Redis at ${address} can't be reached (${reason}): ${fix}`;
}

/** Whether an attempt to connect failed, not a command. */
export function isUnreachable(error: Error): boolean {
  return 'syscall' in error || error.message.startsWith('All sentinels are unreachable');
}

/** Whether Redis answered the command with an error. */
export function isRefusal(error: unknown): boolean {
  const isReply = error instanceof Error && error.name === 'ReplyError';
  return isReply || REFUSALS.some(([word]) => word.test(messageOf(error)));
}

/** Whether Redis' users file denies the command to its user. */
export function isDenial(error: unknown): boolean {
  return DENIAL.test(messageOf(error));
}
