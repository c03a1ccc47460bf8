import dns from 'node:dns';
import { readFileSync } from 'node:fs';

/** Has this process find the names of a file like /etc/hosts. */
export function useHostsFile(file: string): void {
  const lookup = dns.lookup as (...args: readonly unknown[]) => void;
  dns.lookup = ((name: string, ...rest: readonly unknown[]) => {
    const lines = readFileSync(file, 'utf8').split('\n');
    const address = lines.find((line) => line.endsWith(` ${name}`))?.split(' ')[0];
    lookup(address ?? name, ...rest);
  }) as typeof dns.lookup;
}
