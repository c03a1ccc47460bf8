/** What went wrong with Redis and what to do about it, in one line; never a password.
 * @param address  host and port, as RedisLink has it */
export function describeRedisError(address: string, error: Error): string {
  const { message } = error;
  const [word = ''] = message.split(/[\s:]/, 1);
  // Older versions of Redis begin the refusal of a script with another text.
  if (/NOPERM|can't run this command or subcommand/.test(message)) {
    const denied = message.replace(/ script: .*$/, '');
    return `Redis at ${address}: grant its user the missing permission: ${denied}`;
  }
  if (['WRONGPASS', 'NOAUTH'].includes(word) || /invalid (username|password)/i.test(message))
    return (
      `Redis at ${address} refuses the login (${word}): ` +
      'correct user and password in --redis-url or REDIS_URL'
    );
  // When a script fails, older versions put the error word in the middle of the text.
  const refusal = /\b(OOM|READONLY|LOADING|MISCONF|CLUSTERDOWN|MASTERDOWN)\b/.exec(message)?.[1];
  if (refusal !== undefined) {
    const fix = REFUSAL_FIXES[refusal];
    const text = `Redis at ${address}: ${message.replace(/\.? script: .*$/, '')}`;
    return fix === undefined ? text : `${text}: ${fix}`;
  }
  const reason = 'code' in error && typeof error.code === 'string' ? error.code : message;
  return `Redis at ${address} can't be reached (${reason}): start it, or correct --redis-url`;
}

/** By error word: what to do about a Redis that answers but refuses. */
const REFUSAL_FIXES: Readonly<Record<string, string>> = {
  OOM: 'raise maxmemory',
  READONLY: 'name the master in --redis-url, or the Sentinels, which know it',
  MISCONF: 'check its disk',
};
