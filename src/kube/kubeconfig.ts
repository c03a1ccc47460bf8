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

/** How often the files that a kubeconfig names are read again, and client-node is asked whether a
 * plug-in's credential has expired. */
const MAX_AGE_MS = 10_000;
const FIX_FILE = 'make the file readable or correct its path';

interface KubeconfigOptions {
  /** URL that replaces the server. */
  readonly master: string | undefined;
  readonly nowMs: () => number;
}

/** The cluster and the user of one context. */
interface Selected {
  /** File and context, for errors. */
  readonly where: string;
  readonly server: URL;
  readonly cluster: Cluster;
  readonly user: User;
  readonly plugin: 'exec' | 'auth-provider' | undefined;
  // What client-node does not read:
  readonly tokenFile: string | undefined;
  readonly impersonation: Credentials['headers'];
}

/** Opens the cluster of a kubeconfig. client-node reads it, and is loaded only here, because that
 * takes half a second and 70 MB.
 * @throws UsageError: one line that names file, context and fix */
export async function openKubeconfig(path: string, o: KubeconfigOptions): Promise<ClusterAccess> {
  let selected = await select(path, o);
  let config = await configure(selected);
  const { where, server, cluster, plugin } = selected;
  const read = async (isRefused: boolean): Promise<Credentials> => {
    if (isRefused) {
      // A KubeConfig keeps a plug-in's credential until it expires: only a new one logs in again.
      selected = await select(path, o);
      config = await configure(selected);
    }
    return readCredentials(config, selected);
  };
  const { nowMs } = o;
  const failsIfStale = plugin !== undefined;
  return {
    server,
    source: where,
    proxy: parseProxy(where, cluster.proxyUrl),
    unverifiedCluster: cluster.skipTLSVerify ? cluster.name : undefined,
    credentials: await renewCredentials(read, { where, maxAgeMs: MAX_AGE_MS, nowMs, failsIfStale }),
  };
}

/** The cluster and the user as they are in the file. */
interface Entries extends Pick<Selected, 'where' | 'cluster' | 'user'> {
  /** The user's fields, also those that client-node does not read. */
  readonly fields: Fields;
  readonly directory: string;
}

/** Reads the file. Entries that lack a required field count as absent, since others may be used. */
async function findEntries(path: string): Promise<Entries> {
  const { KubeConfig } = await import('./client-node.ts');
  const file = new KubeConfig();
  const fields = await parseFile(path);
  file.loadFromString(JSON.stringify(fields), { onInvalidEntry: 'filter' });
  const directory = dirname(resolve(path));
  file.makePathsAbsolute(directory);
  const name = file.getCurrentContext();
  const context = name ? file.getContextObject(name) : undefined;
  const where = `kubeconfig ${path}${context ? `, context "${name}"` : ''}`;
  const fail = (what: string): never => {
    throw new UsageError(`${where}: ${what}`);
  };
  if (!name) return fail('no current-context is set; run: kubectl config use-context NAME');
  if (!context)
    return fail(
      `context "${name}" is not in it, or names no cluster; run: kubectl config get-contexts`,
    );
  const cluster =
    file.getCluster(context.cluster) ??
    fail(
      `its cluster "${context.cluster}" is not in the file, or has no server; ` +
        'run: kubectl config set-cluster NAME --server=URL',
    );
  const user =
    (context.user ? file.getUser(context.user) : { name: '' }) ??
    fail(`its user "${context.user}" is not in the file; run: kubectl config set-credentials`);
  return { where, cluster, user, fields: fieldsOfUser(fields, user.name), directory };
}

/** Makes cluster and user such that client-node treats them as kubectl does. */
async function select(path: string, { master }: KubeconfigOptions): Promise<Selected> {
  const { where, cluster, user, fields, directory } = await findEntries(path);
  const server = serverOf(cluster, user, { where, master });
  const { certData, certFile, keyData, keyFile, exec, authProvider } = user;
  const { tokenFile } = fields;
  const selected: Selected = {
    where,
    server,
    cluster: usedCluster(cluster, master),
    user: {
      ...user,
      certFile: fileUnless(certData, certFile),
      keyFile: fileUnless(keyData, keyFile),
      exec: isFields(exec) ? prepareExec(exec, server, directory) : undefined,
    },
    plugin: exec ? 'exec' : authProvider ? 'auth-provider' : undefined,
    tokenFile: typeof tokenFile === 'string' ? resolve(directory, tokenFile) : undefined,
    impersonation: impersonationOf(fields),
  };
  refusePlaintext(selected);
  return selected;
}

function serverOf(
  { server, caData, caFile, skipTLSVerify, tlsServerName }: Cluster,
  { certData, certFile }: User,
  { where, master }: { readonly where: string; readonly master: string | undefined },
): URL {
  const hasTls = skipTLSVerify || (caData ?? caFile ?? tlsServerName ?? certData ?? certFile);
  const protocol = hasTls ? 'https:' : 'http:';
  return master
    ? parseServer('--master', master, protocol)
    : parseServer(`${where}: server`, server, protocol);
}

/** A CA does not count where certificates are not checked, and the name in them belongs to the
 * kubeconfig's own server. */
function usedCluster(cluster: Cluster, master: string | undefined): Cluster {
  const { caData = '', caFile, tlsServerName = '' } = cluster;
  const ca = cluster.skipTLSVerify
    ? { caData: '', caFile: '' }
    : { caData, caFile: fileUnless(caData, caFile) };
  return { ...cluster, ...ca, tlsServerName: master ? '' : tlsServerName };
}

/** Data takes precedence over a file; client-node prefers the file. */
function fileUnless(data: string | undefined, file: string | undefined): string {
  return data ? '' : (file ?? '');
}

async function parseFile(path: string): Promise<Fields> {
  const fail = (why: string, cause?: unknown): never => {
    throw new UsageError(`kubeconfig ${path}: ${why}`, { cause });
  };
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    const fix = path.includes(':')
      ? 'give one file, lists are not read'
      : 'check --kubeconfig and the environment variable KUBECONFIG';
    return fail(`${reasonOf(cause)}; ${fix}`, cause);
  });
  // By its default, because the bundle has no other export of this CommonJS package.
  const { default: yaml } = await import('yaml');
  const document = yaml.parseDocument(text);
  const [error] = document.errors;
  const value: unknown = error === undefined ? document.toJS() : undefined;
  if (isFields(value)) return value;
  const why =
    error === undefined ? 'a kubeconfig, it contains no mapping' : `YAML: ${reasonOf(error)}`;
  return fail(`not ${why}; check it with: kubectl config view --kubeconfig=${path}`);
}

function fieldsOfUser({ users }: Fields, name: string): Fields {
  const entries: readonly unknown[] = Array.isArray(users) ? users : [];
  const entry = entries.find((each) => isFields(each) && each['name'] === name);
  return isFields(entry) && isFields(entry['user']) ? entry['user'] : {};
}

/** The section as client-node runs it: with the command's path, which is relative to the kubeconfig
 * unless it has no slash, and with the variable from which plug-ins read their API version. */
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

/** The headers of impersonation but for the user's, which client-node sends. */
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

/** Everybody on the way could read a token or password that is sent by http, and use it. client-go
 * leaves a kubeconfig's credentials out then, for loopback, too (tools/clientcmd/client_config.go
 * ClientConfig: it reads them only if IsConfigTransportTLS); saying so beats an unexplained 401.
 * @throws UsageError if credentials would be sent in plaintext */
function refusePlaintext({ where, server, cluster, user, plugin, tokenFile }: Selected): void {
  if (server.protocol === 'https:') return;
  const credentials = [
    [user.token ?? tokenFile, 'a token'],
    [user.username, 'a password'],
    [user.impersonateUser, 'impersonation'],
    [plugin, `an ${plugin} plugin`],
  ];
  const [, has] = credentials.find(([value]) => value) ?? [];
  if (has === undefined) return;
  throw new UsageError(
    `${where}: its user "${user.name}" has ${has}, which is not sent to ${server.href} since ` +
      `anybody on the way could read it; give cluster "${cluster.name}" (or --master) an https:// ` +
      'URL, or the context a user without credentials',
  );
}

/** @throws UsageError for a file that can't be read, by the field that names it */
async function configure({ where, cluster, user }: Selected): Promise<KubeConfig> {
  const { KubeConfig } = await import('./client-node.ts');
  for (const [field, path] of [
    ['certificate-authority', cluster.caFile],
    ['client-certificate', user.certFile],
    ['client-key', user.keyFile],
  ])
    if (path) await readCredential(path, `${where}: ${field}`, FIX_FILE);
  const config = new KubeConfig();
  // Requests of ours do not go through its agent, which refuses http and knows other proxies.
  config.loadFromClusterAndUser({ ...cluster, server: 'https://unused', proxyUrl: '' }, user);
  return config;
}

/** @throws UsageError if a plug-in fails, or a file can't be read */
async function readCredentials(
  config: KubeConfig,
  { where, cluster, plugin, tokenFile, impersonation }: Selected,
): Promise<Credentials> {
  const options: {
    headers: Record<string, string>;
    auth?: string;
    ca?: Buffer;
    cert?: Buffer | string;
    key?: Buffer | string;
  } = { headers: {} };
  try {
    await config.applyToHTTPSOptions(options);
  } catch (cause) {
    const why =
      plugin === undefined
        ? `${reasonOf(cause)}; ${FIX_FILE}`
        : `its ${plugin} plugin failed: ${reasonOf(cause)}; run its command by hand, or log in again`;
    throw new UsageError(`${where}: ${why}`, { cause });
  }
  const { auth, ca, cert, key } = options;
  const token = tokenFile && (await readCredential(tokenFile, `${where}: tokenFile`, FIX_FILE));
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
