import { BlockList, isIP } from 'node:net';
import { isLoopback, withoutBrackets } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { parseHttpUrl } from './credentials.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Finds the proxy that HTTPS_PROXY (HTTP_PROXY for an `http://` server) names, unless NO_PROXY or
 * loopback exempts the server. Follows Go (golang.org/x/net/http/httpproxy), but refuses values
 * that Go ignores or fails at in each request.
 * @throws UsageError that names the variable, not its value, which may have a password */
export function proxyOf(server: URL, env: Environment): URL | undefined {
  const name = server.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  const text = read(env, name);
  if (text === '' || isExempt(server, read(env, 'NO_PROXY'))) return undefined;
  const url = parseHttpUrl(text.includes('://') ? text : `http://${text}`);
  if (url === undefined)
    throw new UsageError(
      `${name}: the proxy is not supported; write http://host:port or https://host:port, or add ` +
        `${server.hostname} to NO_PROXY`,
    );
  return url;
}

function read(env: Environment, name: string): string {
  return env[name] || env[name.toLowerCase()] || '';
}

function isExempt({ hostname, port, protocol }: URL, noProxy: string): boolean {
  const host = withoutBrackets(hostname);
  const ownPort = port || (protocol === 'https:' ? '443' : '80');
  return (
    isLoopback(host) ||
    noProxy
      .toLowerCase()
      .split(',')
      .some((entry) => matches(entry.trim(), host, ownPort))
  );
}

/** Whether an entry of NO_PROXY matches the host: `*`, a network (10.0.0.0/8), or an address or a
 * domain with all below it, perhaps with a port. `.domain` matches only what is below it. */
function matches(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true;
  const [, network = '', prefix] = /^([^/]+)\/(\d+)$/.exec(entry) ?? [];
  if (prefix !== undefined) return isIn(network, Number(prefix), host);
  const [, name = entry, ownPort] =
    isIP(entry) === 0 ? (/^(\[.*\]|[^:]*):(\d+)$/.exec(entry) ?? []) : [];
  return (ownPort === undefined || ownPort === port) && isHost(withoutBrackets(name), host);
}

function isHost(name: string, host: string): boolean {
  const family = isIP(name);
  if (family !== 0) return isIn(name, family === 6 ? 128 : 32, host);
  if (isIP(host) !== 0 || name === '') return false;
  const domain = name.replace(/^\*\./, '.');
  return domain.startsWith('.') ? host.endsWith(domain) : `.${host}`.endsWith(`.${domain}`);
}

function isIn(network: string, bits: number, host: string): boolean {
  const family = isIP(network);
  if (family === 0 || isIP(host) === 0 || bits > (family === 6 ? 128 : 32)) return false;
  const list = new BlockList();
  list.addSubnet(network, bits, family === 6 ? 'ipv6' : 'ipv4');
  return list.check(host, isIP(host) === 6 ? 'ipv6' : 'ipv4');
}
