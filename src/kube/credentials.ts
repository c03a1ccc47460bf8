import { createSecureContext } from 'node:tls';
import { bracketIPv6 } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { openCredentialFile, type CredentialFile } from './credential-file.ts';
import { readKubeconfig, reasonOf, type KubeconfigContext, type Material } from './kubeconfig.ts';
import {
  openPluginCredentials,
  type PluginCredentials,
  type PluginOptions,
} from './plugin-credentials.ts';

/** PEM texts and settings for TLS. */
export interface TlsMaterial {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly servername: string | undefined;
  readonly skipVerify: boolean;
}

/** The address of the API server and the credentials for it. Credentials can change at run time and
 * are asked for at each request. */
export interface ClusterAccess {
  /** May have a path (https://host/k8s/clusters/x). */
  readonly server: URL;
  /** For logs: which kubeconfig and context, or "in-cluster". */
  readonly source: string;
  /** Namespace of the context or of the pod. */
  readonly namespace?: string | undefined;
  /** HTTP proxy that tunnels to the server. */
  readonly proxy?: URL | undefined;
  /** Name of the kubeconfig's cluster if its server's certificate is not checked
   * (insecure-skip-tls-verify). */
  readonly unverifiedCluster?: string | undefined;
  /** Returns the same object as long as nothing has changed. */
  tls(): Promise<TlsMaterial>;
  /** Value of the Authorization header, if the user has one. */
  authorization(): Promise<string | undefined>;
  /** Called after a 401: the next `tls` and `authorization` are read from their source again. */
  refresh(): Promise<void>;
}

export interface AccessOptions {
  /** Path of one file. */
  readonly kubeconfig?: string | undefined;
  /** URL that replaces the kubeconfig's server, or is used alone, without credentials. */
  readonly master?: string | undefined;
  /** Context to use instead of the kubeconfig's current-context. */
  readonly context?: string | undefined;
  /** Only KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are read. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** For tests: the folder that Kubernetes mounts into pods. */
  readonly serviceAccountDir?: string;
  readonly nowMs?: () => number;
  readonly loadClientNode?: PluginOptions['loadClientNode'];
}

const SERVICE_ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Finds the cluster as upstream does: by kubeconfig and master where given, else by the pod's
 * service account.
 * @throws UsageError: one line that names file, context and fix */
export async function loadClusterAccess(options: AccessOptions): Promise<ClusterAccess> {
  const nowMs = options.nowMs ?? Date.now;
  if (options.kubeconfig) {
    const context = await readKubeconfig(options.kubeconfig, options.context);
    return fromContext(context, options, nowMs);
  }
  if (options.master) {
    const server = parseServer('--master', options.master, 'http:');
    return createAccess({ server, source: `--master ${server.href}` }, { where: '--master' });
  }
  return fromServiceAccount(options, nowMs);
}

async function fromContext(
  context: KubeconfigContext,
  options: AccessOptions,
  nowMs: () => number,
): Promise<ClusterAccess> {
  const where = `kubeconfig ${context.path}, context "${context.context}"`;
  const server = serverOf(context, where, options.master);
  refusePlaintext(context, where, server);
  if ((context.cert === undefined) !== (context.key === undefined)) {
    const half = context.cert
      ? 'a client-certificate but no client-key'
      : 'a client-key but no client-certificate';
    throw new UsageError(`${where}: its user has ${half}; give both`);
  }
  const open = createFileOpener(where, 'make the file readable or correct its path', nowMs);
  const { skipVerify, namespace, cluster } = context;
  return createAccess(
    {
      server,
      source: where,
      namespace,
      proxy: parseProxy(where, context.proxyUrl),
      unverifiedCluster: skipVerify ? cluster : undefined,
    },
    {
      where,
      // The name in the kubeconfig belongs to the kubeconfig's server; kubectl ignores it, too.
      servername: options.master ? undefined : context.servername,
      skipVerify,
      ca: skipVerify ? undefined : await open('certificate-authority', context.ca),
      cert: await open('client-certificate', context.cert),
      key: await open('client-key', context.key),
      token: await open('tokenFile', context.token),
      basic: context.basic,
      plugin:
        context.plugin &&
        (await openPluginCredentials({
          ...context.plugin,
          where,
          server: server.href,
          nowMs,
          loadClientNode: options.loadClientNode ?? (() => import('@kubernetes/client-node')),
        })),
    },
  );
}

function serverOf(context: KubeconfigContext, where: string, master: string | undefined): URL {
  const { server, ca, cert, skipVerify, servername } = context;
  const hasTls = ca !== undefined || cert !== undefined || skipVerify || servername !== undefined;
  const protocol = hasTls ? 'https:' : 'http:';
  if (master) return parseServer('--master', master, protocol);
  if (server === '')
    throw new UsageError(
      `${where}: its cluster has no server; run: kubectl config set-cluster NAME --server=URL`,
    );
  return parseServer(`${where}: server`, server, protocol);
}

/** Everybody on the way could read a token or password that is sent by http, and use it. client-go
 * leaves a kubeconfig's credentials out then, for loopback, too (tools/clientcmd/client_config.go
 * ClientConfig: it reads them only if IsConfigTransportTLS); saying so beats an unexplained 401.
 * @throws UsageError if credentials would be sent in plaintext */
function refusePlaintext(context: KubeconfigContext, where: string, server: URL): void {
  const { token, basic, plugin, user, cluster } = context;
  if (server.protocol === 'https:') return;
  const has = token ? 'a token' : basic ? 'a password' : plugin && `an ${plugin.kind} plugin`;
  if (has === undefined) return;
  throw new UsageError(
    `${where}: its user "${user}" has ${has}, which is not sent to ${server.href} since anybody ` +
      `on the way could read it; give cluster "${cluster}" (or --master) an https:// URL, or the ` +
      'context a user without credentials',
  );
}

async function fromServiceAccount(
  options: AccessOptions,
  nowMs: () => number,
): Promise<ClusterAccess> {
  const host = options.env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = options.env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host === '' || port === '') {
    throw new UsageError(
      'no cluster: this is not a pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are ' +
        'not set); give --kubeconfig=FILE or --master=URL',
    );
  }
  const directory = options.serviceAccountDir ?? SERVICE_ACCOUNT_DIR;
  const where = 'in-cluster credentials';
  const hint = 'set automountServiceAccountToken: true for the pod, or give --kubeconfig=FILE';
  const openFile = createFileOpener(where, hint, nowMs);
  const open = (name: string): Promise<CredentialFile | undefined> =>
    openFile(name, { kind: 'file', path: `${directory}/${name}` });
  const ca = await open('ca.crt');
  const token = await open('token');
  const namespace = await open('namespace').catch(() => undefined);
  const url = `https://${bracketIPv6(host)}:${port}`;
  const server = parseServer('KUBERNETES_SERVICE_HOST', url, 'https:');
  return createAccess(
    { server, source: 'in-cluster', namespace: await namespace?.read() },
    { where, ca, token },
  );
}

/** Where the credentials of one user come from. */
interface CredentialSources {
  /** For errors. */
  readonly where: string;
  readonly servername?: string | undefined;
  readonly skipVerify?: boolean;
  readonly ca?: CredentialFile | undefined;
  readonly cert?: CredentialFile | undefined;
  readonly key?: CredentialFile | undefined;
  readonly token?: CredentialFile | undefined;
  readonly basic?: KubeconfigContext['basic'];
  readonly plugin?: PluginCredentials | undefined;
}

async function createAccess(
  place: Pick<ClusterAccess, 'server' | 'source' | 'namespace' | 'proxy' | 'unverifiedCluster'>,
  sources: CredentialSources,
): Promise<ClusterAccess> {
  const { where, ca, cert, key, token, basic, plugin } = sources;
  let current = await readTls(sources);
  checkTls(where, current);

  return {
    ...place,
    async tls() {
      const latest = await readTls(sources);
      if (latest.ca === current.ca && latest.cert === current.cert && latest.key === current.key)
        return current;
      try {
        checkTls(where, latest);
        current = latest;
      } catch {
        // Certificate and key are two files: one was replaced, and the other one will be soon.
      }
      return current;
    },
    async authorization() {
      if (plugin) return (await plugin.current()).authorization;
      if (token) return `Bearer ${await token.read()}`;
      if (basic)
        return `Basic ${Buffer.from(`${basic.username}:${basic.password}`).toString('base64')}`;
      return undefined;
    },
    async refresh() {
      for (const file of [ca, cert, key, token]) file?.expire();
      await plugin?.renew();
    },
  };
}

async function readTls(sources: CredentialSources): Promise<TlsMaterial> {
  const issued = await sources.plugin?.current();
  return {
    ca: await sources.ca?.read(),
    cert: issued?.cert ?? (await sources.cert?.read()),
    key: issued?.key ?? (await sources.key?.read()),
    servername: sources.servername,
    skipVerify: sources.skipVerify ?? false,
  };
}

function checkTls(where: string, { ca, cert, key }: TlsMaterial): void {
  try {
    createSecureContext({ ca, cert, key });
  } catch (cause) {
    throw new UsageError(
      `${where}: certificate, key or CA can't be used: ${reasonOf(cause)}; ` +
        'check that they are PEM and that the key belongs to the certificate',
      { cause },
    );
  }
}

/** @param where  names the source in errors
 * @param hint   says how to fix an unreadable file */
function createFileOpener(where: string, hint: string, nowMs: () => number) {
  return async (
    what: string,
    material: Material | undefined,
  ): Promise<CredentialFile | undefined> => {
    if (material === undefined) return undefined;
    if (material.kind === 'data')
      return { read: () => Promise.resolve(material.text), expire: () => {} };
    const { path } = material;
    try {
      return await openCredentialFile(path, nowMs);
    } catch (cause) {
      const why = `${what} ${path}: ${reasonOf(cause)}`;
      throw new UsageError(`${where}: ${why}; ${hint}`, { cause });
    }
  };
}

function parseServer(where: string, text: string, protocol: 'http:' | 'https:'): URL {
  const url = parseUrl(/^[a-z]+:\/\//i.test(text) ? text : `${protocol}//${text}`);
  if (url === undefined)
    throw new UsageError(`${where}: "${text}" is not a server; write https://host:port`);
  return url;
}

function parseProxy(where: string, text: string | undefined): URL | undefined {
  if (text === undefined) return undefined;
  const url = parseUrl(text);
  if (url === undefined)
    throw new UsageError(
      `${where}: proxy-url "${text}" is not supported; write http://host:port or https://host:port`,
    );
  return url;
}

function parseUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && ['http:', 'https:'].includes(url.protocol) ? url : undefined;
}
