import { connect as connectPlaintext } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { RedisOptions } from 'ioredis';
import { messageOf } from '../runtime/error-message.ts';
import { OWN_FOLDER, OWN_REDIS_SOCKET } from '../runtime/own-folder.ts';

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
  // ioredis' socketTimeout: connected, and no answer.
  if (message.startsWith('Socket timeout'))
    return `Redis at ${address} does not answer: look at its load, and at its host`;
  const reason = typeof code === 'string' ? code : message;
  return `Redis at ${address} can't be reached (${reason}): ${howToReach(address, reason, usesTls)}`;
}

function howToReach(address: string, reason: string, usesTls: boolean): string {
  if (isOwnRedis(address)) return 'sutler all starts it again by itself';
  // A server without TLS waits for the rest of what it takes for a command.
  return usesTls && /ETIMEDOUT/.test(reason)
    ? 'start it, correct --redis-url, or leave TLS out where it has none ' +
        '(redis://, or --redis-sentinel-plaintext)'
    : 'start it, or correct --redis-url';
}

/** Whether it is the Redis that a `sutler all` runs for itself. */
function isOwnRedis(address: string): boolean {
  const [folder = '', socket] = address.split('/').slice(-2);
  return socket === OWN_REDIS_SOCKET && OWN_FOLDER.test(folder);
}

/** Whether the error is of an attempt to connect, not of a command. */
export function isUnreachable(error: Error): boolean {
  return 'syscall' in error || error.message.startsWith('All sentinels are unreachable');
}

/** Whether Redis answered the command, with an error. */
export function isRefusal(error: unknown): boolean {
  const isReply = error instanceof Error && error.name === 'ReplyError';
  return isReply || findRefusal(messageOf(error)) !== undefined;
}

/** Older versions begin the denial in a script with another text. */
const DENIAL = /\bNOPERM\b|script can't (run this command|access at least one)/;

/** Whether Redis' users file denies the command to its user. */
export function isDenial(error: unknown): boolean {
  return DENIAL.test(messageOf(error));
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

/** The fix where Redis is a node of a cluster. */
export const NO_CLUSTER =
  'Redis Cluster is not supported: name a Redis without cluster mode in --redis-url, ' +
  'or the Sentinels of one';

const REFUSALS: readonly Refusal[] = [
  {
    word: /sentinels are unreachable.*\b(WRONGPASS|NOAUTH)\b/,
    fix: 'correct --redis-sentinel-username and --redis-sentinel-password',
  },
  { word: /No such master with that name/, fix: 'correct the name of the master in --redis-url' },
  {
    word: DENIAL,
    fix:
      'grant its user the missing permission ' +
      '(k8s/redis/users.acl has what each process needs)',
  },
  {
    word: /^(WRONGPASS|NOAUTH)\b|invalid (username|password)/i,
    isLogin: true,
    fix: 'correct user and password in --redis-url or REDIS_URL',
  },
  { word: /\bOOM\b/, fix: 'raise maxmemory' },
  { word: /\bMISCONF\b/, fix: 'check its disk' },
  { word: /\bNOREPLICAS\b/, fix: 'start its replicas, or correct min-replicas-to-write' },
  { word: /\b(READONLY|MASTERDOWN)\b/, fix: NAME_THE_MASTER },
  { word: /\bLOADING\b/, fix: 'it goes on by itself when its data is read' },
  { word: /\b(MOVED|ASK|CROSSSLOT|CLUSTERDOWN)\b/, fix: NO_CLUSTER },
];

const ANSWER_MS = 2_000;

type SentinelSettings = Pick<RedisOptions, 'sentinels' | 'sentinelTLS'>;

/** Whether ioredis says that no Sentinel can be reached, when each of them has named a
 * master that could not be connected to, as in a failover. */
export function hasNoCause(error: Error): boolean {
  return /sentinels are unreachable/.test(error.message) && !error.message.includes('Last error');
}

/** Whether ioredis reports that it reached no Sentinel, but not why. */
export function isUnexplained(error: Error): boolean {
  return /sentinels are unreachable.*Connection is closed/.test(error.message);
}

/** Connects to each Sentinel to learn what is wrong with the first that does not answer: ioredis
 * drops the error of a connection to a Sentinel. */
export async function findSentinelFault(settings: SentinelSettings): Promise<Error | undefined> {
  for (const sentinel of settings.sentinels ?? []) {
    const fault = await faultOf(sentinel, settings);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function faultOf(
  { host = '127.0.0.1', port = 26_379 }: { readonly host?: string; readonly port?: number },
  { sentinelTLS }: SentinelSettings,
): Promise<Error | undefined> {
  return new Promise((resolve) => {
    const socket =
      sentinelTLS === undefined
        ? connectPlaintext({ host, port })
        : connectTls({ host, port, ...sentinelTLS });
    const end = (fault?: Error): void => {
      socket.destroy();
      resolve(fault);
    };
    const timeout = Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' });
    socket.setTimeout(ANSWER_MS, () => end(timeout));
    socket.once('error', end);
    socket.once('close', () => end(new Error('it ends the connection')));
    // Any answer will do, a refused login too.
    socket.once('data', () => end());
    socket.write('PING\r\n');
  });
}
