import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Closers } from '#src/runtime/closers.ts';
import { freePort } from './free-port.ts';

/** Starts one Sentinel on loopback that decides alone, and quickly. It knows the master as `main`.
 * @param o.settings  more lines of its configuration
 * @returns its port, which is its TLS port if `o.settings` say `port 0` */
export async function startSentinel(o: {
  readonly dir: string;
  readonly masterPort: number;
  readonly masterPassword: string;
  readonly closers: Closers;
  readonly settings?: (port: number) => readonly string[];
}): Promise<number> {
  const port = await freePort();
  const file = join(o.dir, 'sentinel.conf');
  const lines = [
    'bind 127.0.0.1',
    `dir ${o.dir}`,
    ...(o.settings?.(port) ?? [`port ${port}`]),
    `sentinel monitor main 127.0.0.1 ${o.masterPort} 1`,
    `sentinel auth-pass main ${o.masterPassword}`,
    'sentinel down-after-milliseconds main 500',
    'sentinel failover-timeout main 3000',
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const child = spawn('redis-server', [file, '--sentinel'], { stdio: 'ignore' });
  o.closers.add('Sentinel', async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  return port;
}
