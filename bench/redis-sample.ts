import type { Redis } from 'ioredis';

/** How many commands clients sent, by connection and purpose. Commands inside scripts are not
 * counted. */
export type SentCommands = ReadonlyMap<string, number>;

/** Records with MONITOR the commands that are sent while `work` runs. This slows Redis down, so
 * times measured meanwhile mean little.
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

/** Name of the bench's own connection, whose commands are not counted. */
export const CLIENT_NAME = 'sutler-bench';

/** Name of a command; for a script, with the kind of key that it works on. */
function describe(args: readonly string[]): string {
  const [command = '', , keys, first = ''] = args;
  const name = command.toLowerCase();
  if (name !== 'evalsha' && name !== 'eval') return name;
  const [, , kind = ''] = /^\{[^}]*\}:([^:]+:)?([^:]+)/.exec(first) ?? [];
  if (first.includes(':status:')) return `${name} status`;
  if (first.includes(':fairness:')) return `${name} fairness`;
  return `${name} queue, ${keys} keys${kind === '' ? '' : ` from ${kind}`}`;
}

/** Connection names without the driver, by client address. */
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
  return name === '' ? 'unnamed' : (name.split(':')[0] ?? name);
}
