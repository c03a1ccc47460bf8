import type { Redis } from 'ioredis';

/** Commands that clients sent, by who sent them and what they were for; what scripts did inside is
 * not among them. */
export type SentCommands = ReadonlyMap<string, number>;

/** Listens in on Redis while `work` runs. Slows Redis down, so times of that work mean little.
 * @see https://redis.io/docs/latest/commands/monitor/ */
export async function sentDuring(redis: Redis, work: () => Promise<void>): Promise<SentCommands> {
  const counts = new Map<string, number>();
  const monitor = await redis.monitor();
  const bySource: { readonly source: string; readonly what: string }[] = [];
  monitor.on('monitor', (_time: string, args: string[], source: string) => {
    if (source !== 'lua') bySource.push({ source, what: describe(args) });
  });
  await work();
  const clients = namesByAddress(String(await redis.client('LIST')));
  monitor.disconnect();
  for (const { source, what } of bySource) {
    const client = clients.get(source) ?? 'unnamed';
    if (client === CLIENT_NAME) continue;
    const key = `${client}: ${what}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

/** What the bench calls its own connection, to leave it out. */
export const CLIENT_NAME = 'sutler-bench';

/** The command; for scripts, what they work on. */
function describe(args: readonly string[]): string {
  const [command = '', , keys, first = ''] = args;
  const word = command.toLowerCase();
  if (word !== 'evalsha' && word !== 'eval') return word;
  const [, , kind = ''] = /^\{[^}]*\}:([^:]+:)?([^:]+)/.exec(first) ?? [];
  if (first.includes(':volume:')) return `${word} record`;
  if (first.includes(':status:')) return `${word} status`;
  if (first.includes(':fairness:')) return `${word} fairness`;
  return `${word} queue, ${keys} keys${kind === '' ? '' : ` from ${kind}`}`;
}

/** "sutler-producer:driver" without the driver. */
function namesByAddress(list: string): ReadonlyMap<string, string> {
  const lines = list.split('\n').map((line) => {
    const address = / addr=(\S+)/.exec(line)?.[1] ?? '';
    const name = / name=(\S*)/.exec(line)?.[1] ?? '';
    return [address, shortName(name)] as const;
  });
  return new Map(lines);
}

function shortName(name: string): string {
  if (name.includes(':w:')) return 'worker (blocking)';
  return name === ''
    ? 'unnamed'
    : (name
        .split(':')
        .slice(0, name.startsWith('sutler-worker') ? 2 : 1)
        .join(' ')
        .split('.')[0] ?? name);
}
