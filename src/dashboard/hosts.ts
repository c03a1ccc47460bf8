import { isIP } from 'node:net';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';

/** Which values of the Host header are served: loopback names, as through kubectl port-forward, the
 * host of the listen address, and the names of --dashboard-hosts. Another name is that of a page
 * whose owner points it at this machine, to read the dashboard from a browser (DNS rebinding).
 * @throws UsageError for a name that is none */
export function parseHosts(
  listenAddress: string,
  names: readonly string[],
): (header: string) => boolean {
  const served = new Set(names.map(parseName));
  const { host } = parseListenAddress('dashboard-address', listenAddress);
  if (host !== undefined) served.add(hostOf(isIP(host) === 6 ? `[${host}]` : host) ?? '');
  return (header) => {
    const name = hostOf(header);
    return name !== undefined && (served.has(name) || isLoopback(name.replace(/^\[|\]$/g, '')));
  };
}

/** @throws UsageError */
function parseName(text: string): string {
  const name = hostOf(isIP(text) === 6 ? `[${text}]` : text);
  if (name === undefined || (isIP(text) !== 6 && /:\d+$/.test(text)))
    throw new UsageError(
      `--dashboard-hosts: "${text}" is not a host name; ` +
        'write dashboard.example.com, without scheme, port and path',
    );
  return name;
}

/** The host in a Host header, without its port, as browsers write it; undefined if it is none. */
function hostOf(header: string): string | undefined {
  const isHost = /^(?:\[[\da-f:.]+\]|[\w.-]+)(?::\d{1,5})?$/i.test(header);
  if (!isHost || !URL.canParse(`http://${header}`)) return undefined;
  return new URL(`http://${header}`).hostname.replace(/\.$/, '');
}
