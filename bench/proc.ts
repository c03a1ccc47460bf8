import { readdir, readFile } from 'node:fs/promises';

/** Linux counts CPU time in hundredths of a second, on every architecture that Node runs on. */
const MS_PER_TICK = 10;

/** User and system time that a process has used. */
export async function cpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The second field is the program's name in brackets and may contain blanks.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * MS_PER_TICK;
}

/** Resident memory of a process. */
export function rssBytes(pid: number): Promise<number> {
  return statusBytes(pid, /^VmRSS:\s+(\d+) kB/m);
}

/** The most resident memory that a process had so far. */
export function peakRssBytes(pid: number): Promise<number> {
  return statusBytes(pid, /^VmHWM:\s+(\d+) kB/m);
}

async function statusBytes(pid: number, line: RegExp): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(line.exec(status)?.[1] ?? 0) * 1024;
}

/** How often the threads of a process waited and were woken: voluntary context switches. */
export async function wakeUps(pid: number): Promise<number> {
  const threads = await readdir(`/proc/${pid}/task`);
  const counts = await Promise.all(
    threads.map(async (thread) => {
      // A thread may end meanwhile.
      const status = await readFile(`/proc/${pid}/task/${thread}/status`, 'utf8').catch(() => '');
      return Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    }),
  );
  return counts.reduce((a, b) => a + b, 0);
}

/** TCP connections that programs in this network namespace have opened since it exists. */
export async function connectionsOpened(): Promise<number> {
  const [names = '', values = ''] = (await readFile('/proc/net/snmp', 'utf8'))
    .split('\n')
    .filter((line) => line.startsWith('Tcp:'));
  return Number(values.split(' ')[names.split(' ').indexOf('ActiveOpens')]);
}

/** Pids of the children of a process, by the name of their program. */
export async function childrenOf(parent: number): Promise<ReadonlyMap<string, number>> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(
    pids.map(async (pid) => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
      const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
      return { pid, name, parent: Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) };
    }),
  );
  return new Map(
    found.filter((process) => process.parent === parent).map(({ name, pid }) => [name, pid]),
  );
}
