import { readFile } from 'node:fs/promises';
import type { Redis } from 'ioredis';
import { commandCounts, readCounters } from './costs.ts';
import { cpuMs, wakeUps } from './proc.ts';
import type { Member } from './testbed.ts';

/** What processes have used since they started, by a name like "jobs: CPU, ms". */
export type Usage = ReadonlyMap<string, number>;

/** Reads CPU time, write calls and written bytes of each process, API requests of those that count
 * them, and Redis' commands, traffic and rounds of reading from its sockets. */
export async function readUsage(members: readonly Member[], redis: Redis): Promise<Usage> {
  const usage = new Map<string, number>();
  const add = (name: string, value: number): void =>
    void usage.set(name, (usage.get(name) ?? 0) + value);
  for (const { name, pid } of members) {
    const [process = name] = name.split('#');
    add(`${process}: CPU, ms`, await cpuMs(pid));
    const written = await writesOf(pid);
    add(`${process}: write calls`, written.calls);
    add(`${process}: bytes written`, written.bytes);
  }
  const info = await redis.info('stats');
  const stat = (name: string): number =>
    Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  add('Redis: bytes received', stat('total_net_input_bytes'));
  add('Redis: bytes sent', stat('total_net_output_bytes'));
  add('Redis: rounds of reading', stat('total_reads_processed'));
  const counters = await readCounters(members, redis);
  for (const count of counters.redisCommands.values()) add('Redis: commands executed', count);
  for (const [command, count] of counters.redisCommands) add(`Redis: ${command}`, count);
  for (const [process, requests] of counters.apiRequests)
    for (const [what, count] of requests) add(`${process}: ${what}`, count);
  return usage;
}

/** Reads what can be read without waking a process other than Redis: CPU time and wake-ups of each
 * process, and Redis' commands. */
export async function readIdleUsage(members: readonly Member[], redis: Redis): Promise<Usage> {
  const usage = new Map<string, number>();
  for (const { name, pid } of members) {
    usage.set(`${name}: CPU, ms`, await cpuMs(pid));
    usage.set(`${name}: wake-ups`, await wakeUps(pid));
  }
  for (const [command, count] of commandCounts(await redis.info('commandstats')))
    // Only the bench itself asks for INFO commandstats; other INFOs come every 15 s at most.
    if (command !== 'info') usage.set(`Redis: ${command}`, count);
  return usage;
}

/** By write(2) and its kin: sockets, pipes and files. */
async function writesOf(pid: number): Promise<{ readonly calls: number; readonly bytes: number }> {
  const text = await readFile(`/proc/${pid}/io`, 'utf8');
  const field = (name: string): number =>
    Number(new RegExp(`^${name}: (\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return { calls: field('syscw'), bytes: field('wchar') };
}

const PERIOD_MS = 1_000;
/** CPU time in a second of processes that only keep themselves alive. */
const QUIET_MS = 60;
const LIMIT_PERIODS = 60;

/** Waits until the processes use hardly any CPU: until what they had to do is done. */
export async function waitUntilQuiet(
  members: readonly Member[],
  pause: (ms: number) => Promise<void>,
): Promise<void> {
  const total = async (): Promise<number> => {
    const all = await Promise.all(members.map(({ pid }) => cpuMs(pid)));
    return all.reduce((a, b) => a + b, 0);
  };
  let last = await total();
  for (let periods = 0; periods < LIMIT_PERIODS; periods += 1) {
    await pause(PERIOD_MS);
    const now = await total();
    if (now - last <= QUIET_MS) return;
    last = now;
  }
}
