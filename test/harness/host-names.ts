import dns from 'node:dns';
import { readFileSync } from 'node:fs';

/** To be loaded by `node --import`, which then finds the names of the file HOSTS_FILE. */
export const HOST_NAMES = import.meta.url;

const { HOSTS_FILE } = process.env;
if (HOSTS_FILE !== undefined) useHostsFile(HOSTS_FILE);

/** Has this process find the names of a file like /etc/hosts. */
export function useHostsFile(file: string): void {
  const lookup = dns.lookup as (...args: readonly unknown[]) => void;
  dns.lookup = ((name: string, ...rest: readonly unknown[]) => {
    const lines = readFileSync(file, 'utf8').split('\n');
    const address = lines.find((line) => line.endsWith(` ${name}`))?.split(' ')[0];
    lookup(address ?? name, ...rest);
  }) as typeof dns.lookup;
}
