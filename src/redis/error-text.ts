import { messageOf } from '../runtime/error-message.ts';

/** What went wrong with Redis and what to do about it, in one line; never a password.
 * @param address  host and port, as RedisLink has it */
export function describeRedisError(address: string, error: unknown): string {
  const message = messageOf(error);
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
  const reason = typeof code === 'string' ? code : message;
  return `Redis at ${address} can't be reached (${reason}): start it, or correct --redis-url`;
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

function findRefusal(message: string): Refusal | undefined {
  return REFUSALS.find(({ word }) => word.test(message));
}

const NAME_THE_MASTER = 'name the master in --redis-url, or the Sentinels, which know it';

const REFUSALS: readonly Refusal[] = [
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
