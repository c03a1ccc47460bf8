import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Cluster, KubeConfig, User } from '@kubernetes/client-node';
import { UsageError } from '../runtime/flags.ts';
import { isFields, type Fields } from '../runtime/json.ts';
import {
  type ClusterAccess,
  type Credentials,
  parseHttpUrl,
  parseServer,
  readCredential,
  reasonOf,
  renewCredentials,
} from './credentials.ts';

/** Interval at which sutler rereads the files that a kubeconfig names, and asks client-node whether
 * a plug-in's credential has expired. */
const MAX_AGE_MS = 10_000;

/** The current context of a kubeconfig. */
interface Context {
  /** File and context, for errors. */
  readonly where: string;
  readonly server: URL;
  readonly cluster: Cluster;
  /** Gives each request its credentials. */
  readonly config: KubeConfig;
  readonly hasPlugin: boolean;
  // What client-node does not read:
  readonly tokenFile: string | undefined;
  readonly impersonation: Credentials['headers'];
}

/** Opens the cluster of a kubeconfig. Only this loads client-node, for half a second and 70 MB.
 * @param master  URL that replaces the server
 * @throws UsageError: one line that names the file and what to do */
export async function openKubeconfig(
  path: string,
  { master, nowMs }: { readonly master: string | undefined; readonly nowMs: () => number },
): Promise<ClusterAccess> {
  let context = await readContext(path, master);
  const { where, server, cluster, hasPlugin } = context;
  const read = async (isRefused: boolean): Promise<Credentials> => {
    // A KubeConfig keeps a plug-in's credential until it expires. A new KubeConfig logs in again.
    if (isRefused) context = await readContext(path, master);
    return readCredentials(context);
  };
  const renewal = { where, maxAgeMs: MAX_AGE_MS, nowMs, failsIfStale: hasPlugin };
  return {
    server,
    source: where,
    proxy: parseProxy(where, cluster.proxyUrl),
    unverifiedCluster: cluster.skipTLSVerify ? cluster.name : undefined,
    credentials: await renewCredentials(read, renewal),
  };
}

async function readContext(path: string, master: string | undefined): Promise<Context> {
  const { KubeConfig } = await import('./client-node.ts');
  const directory = dirname(resolve(path));
  const fields = await parseFile(path);
  const file = new KubeConfig();
  // Skips entries that lack a required field. The current context may use others.
  file.loadFromString(JSON.stringify(fields), { onInvalidEntry: 'filter' });
  file.makePathsAbsolute(directory);
  const { where, cluster, user } = currentOf(file, path);
  const server = serverOf(where, { cluster, user, master });
  const own = fieldsOfUser(fields, user.name);
  const { tokenFile } = own;
  const plugin: unknown = user.exec ?? user.authProvider;
  const credential = user.token ?? tokenFile ?? user.username ?? user.impersonateUser ?? plugin;
  if (credential && server.protocol !== 'https:') throw plaintextError(where, server, user);
  const config = new KubeConfig();
  config.loadFromClusterAndUser(usedCluster(cluster), usedUser(user, server, directory));
  return {
    where,
    server,
    // tlsServerName belongs to the kubeconfig's own server.
    cluster: master ? { ...cluster, tlsServerName: '' } : cluster,
    config,
    hasPlugin: Boolean(plugin),
    tokenFile: typeof tokenFile === 'string' ? resolve(directory, tokenFile) : undefined,
    impersonation: impersonationOf(own),
  };
}

/** Finds cluster and user of the current context.
 * @throws UsageError if the file lacks one of them */
function currentOf(file: KubeConfig, path: string) {
  const name = file.getCurrentContext() ?? '';
  const where = `kubeconfig ${path}, context "${name}"`;
  const cluster = file.getCurrentCluster();
  const user = file.getContextObject(name)?.user ? file.getCurrentUser() : { name: '' };
  if (cluster && user) return { where, cluster, user };
  throw new UsageError(
    `${where}: the file lacks this context, its cluster with a server, or its user; ` +
      `see: kubectl config view --minify --kubeconfig=${path}`,
  );
}

/** Makes the error for credentials without TLS. client-go leaves them out, even for loopback
 * (tools/clientcmd client_config.go ClientConfig), and the server answers an unexplained 401. */
function plaintextError(where: string, server: URL, { name }: User): UsageError {
  return new UsageError(
    `${where}: sutler sends no credentials of user "${name}" to ${server.href}, as http is not ` +
      'encrypted; give the cluster (or --master) an https:// URL, or the context ' +
      'a user without credentials',
  );
}

async function parseFile(path: string): Promise<Fields> {
  // Uses the default export: in the bundle, this CommonJS package has no other.
  const { default: yaml } = await import('yaml');
  try {
    const value: unknown = yaml.parse(await readFile(path, 'utf8'));
    if (isFields(value)) return value;
    throw new Error('it is not a YAML mapping');
  } catch (cause) {
    throw new UsageError(
      `kubeconfig ${path}: ${reasonOf(cause)}; give one file by --kubeconfig or KUBECONFIG, and ` +
        `check it with: kubectl config view --kubeconfig=${path}`,
      { cause },
    );
  }
}

function fieldsOfUser({ users }: Fields, name: string): Fields {
  const entries: readonly unknown[] = Array.isArray(users) ? users : [];
  const entry = entries.find((each) => isFields(each) && each['name'] === name);
  return isFields(entry) && isFields(entry['user']) ? entry['user'] : {};
}

function serverOf(
  where: string,
  o: { readonly cluster: Cluster; readonly user: User; readonly master: string | undefined },
): URL {
  const { server, caData, caFile, skipTLSVerify, tlsServerName } = o.cluster;
  const { certData, certFile } = o.user;
  const hasTls = skipTLSVerify || (caData ?? caFile ?? tlsServerName ?? certData ?? certFile);
  const protocol = hasTls ? 'https:' : 'http:';
  return o.master
    ? parseServer('--master', o.master, protocol)
    : parseServer(`${where}: server`, server, protocol);
}

/** Adapts the cluster for client-node, which only reads credentials here: its agent refuses http
 * and handles proxies differently. A CA is ignored if certificates are not checked. */
function usedCluster(cluster: Cluster): Cluster {
  const { skipTLSVerify, caData = '', caFile } = cluster;
  const ca = skipTLSVerify
    ? { caData: '', caFile: '' }
    : { caData, caFile: fileUnless(caData, caFile) };
  return { ...cluster, ...ca, server: 'https://unused', proxyUrl: '' };
}

function usedUser(user: User, server: URL, directory: string): User {
  const exec: unknown = user.exec;
  return {
    ...user,
    certFile: fileUnless(user.certData, user.certFile),
    keyFile: fileUnless(user.keyData, user.keyFile),
    exec: isFields(exec) ? prepareExec(exec, server, directory) : undefined,
  };
}

/** Data takes precedence over a file; client-node prefers the file. */
function fileUnless(data: string | undefined, file: string | undefined): string {
  return data ? '' : (file ?? '');
}

/** Prepares the section for client-node: resolves a command with a slash relative to the
 * kubeconfig, and adds the variable from which plug-ins read their API version. */
function prepareExec(section: Fields, server: URL, directory: string): Fields {
  const { command, apiVersion = 'client.authentication.k8s.io/v1', env } = section;
  const cluster = section['provideClusterInfo'] === true ? { server: server.href } : undefined;
  const info = { kind: 'ExecCredential', apiVersion, spec: { interactive: false, cluster } };
  return {
    ...section,
    command:
      typeof command === 'string' && command.includes('/') ? resolve(directory, command) : command,
    env: [
      { name: 'KUBERNETES_EXEC_INFO', value: JSON.stringify(info) },
      ...(Array.isArray(env) ? (env as unknown[]) : []),
    ],
  };
}

/** Makes the headers of impersonation, except for the user's, which client-node sends. */
function impersonationOf(user: Fields): Credentials['headers'] {
  const { 'as-uid': uid, 'as-groups': groups, 'as-user-extra': extra } = user;
  const entries = Object.entries(isFields(extra) ? extra : {}).map(
    ([name, values]) => [`impersonate-extra-${encodeURIComponent(name)}`, values] as const,
  );
  return Object.fromEntries(
    [['impersonate-uid', uid] as const, ['impersonate-group', groups] as const, ...entries]
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, Array.isArray(value) ? value.map(String) : String(value)]),
  );
}

/** @throws UsageError if a plug-in fails, or a file can't be read */
async function readCredentials({
  where,
  cluster,
  config,
  tokenFile,
  impersonation,
}: Context): Promise<Credentials> {
  const options: {
    headers: Record<string, string>;
    auth?: string;
    ca?: Buffer;
    cert?: Buffer | string;
    key?: Buffer | string;
  } = { headers: {} };
  const fix = "make the user's files readable, or log in again";
  await config.applyToHTTPSOptions(options).catch((cause: unknown) => {
    throw new UsageError(`${where}: ${reasonOf(cause)}; ${fix}`, { cause });
  });
  const { auth, ca, cert, key } = options;
  const token = tokenFile && (await readCredential(tokenFile, `${where}: tokenFile`, fix));
  return {
    tls: {
      ca: ca?.toString(),
      cert: cert?.toString(),
      key: key?.toString(),
      servername: cluster.tlsServerName || undefined,
      skipVerify: cluster.skipTLSVerify,
    },
    headers: {
      ...(auth ? { Authorization: `Basic ${Buffer.from(auth).toString('base64')}` } : {}),
      ...options.headers,
      ...(token ? { Authorization: `Bearer ${token}` } : {}),
      ...impersonation,
    },
  };
}

function parseProxy(where: string, text: string | undefined): URL | undefined {
  const url = text ? parseHttpUrl(text) : undefined;
  if (text && url === undefined)
    throw new UsageError(
      `${where}: proxy-url "${text}" is not supported; write http://host:port or https://host:port`,
    );
  return url;
}
