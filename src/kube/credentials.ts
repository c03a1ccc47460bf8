import { isIPv6 } from 'node:net';
import { createSecureContext } from 'node:tls';
import { UsageError } from '../runtime/flags.ts';
import { openCredentialFile, type CredentialFile } from './credential-file.ts';
import { readKubeconfig, reasonOf, type KubeconfigContext, type Material } from './kubeconfig.ts';
import {
  openPluginCredentials,
  type PluginCredentials,
  type PluginOptions,
} from './plugin-credentials.ts';

/** What TLS needs; PEM texts. */
export interface TlsMaterial {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly servername: string | undefined;
  readonly skipVerify: boolean;
}

/** Where the API server is and how to be let in. Everything that can be replaced at run time is
 * asked for at each request. */
export interface ClusterAccess {
  /** May carry a path (https://host/k8s/clusters/x). */
  readonly server: URL;
  /** For logs: which kubeconfig and context, or "in-cluster". */
  readonly source: string;
  /** Namespace of the context or of the pod. */
  readonly namespace: string | undefined;
  /** HTTP proxy that tunnels to the server. */
  readonly proxy: URL | undefined;
  /** The same object as long as nothing changed. */
  tls(): Promise<TlsMaterial>;
  /** Value of the Authorization header, if the user has one. */
  authorization(): Promise<string | undefined>;
  /** The server answered 401: the next `tls` and `authorization` come from the source again. */
  refresh(): Promise<void>;
}

export interface AccessOptions {
  /** Path of one file. */
  readonly kubeconfig?: string | undefined;
  /** URL that replaces the kubeconfig's server, or is used alone, without credentials. */
  readonly master?: string | undefined;
  /** Instead of the kubeconfig's current-context. */
  readonly context?: string | undefined;
  /** KUBERNETES_SERVICE_HOST and _PORT are read, nothing else. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** For tests; the folder that Kubernetes mounts into pods. */
  readonly serviceAccountDir?: string;
  readonly nowMs?: () => number;
  readonly loadClientNode?: PluginOptions['loadClientNode'];
}

const SERVICE_ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Finds the cluster as upstream does: kubeconfig and/or master where given, else the service
 * account of the pod.
 * @throws UsageError: one line that names file, context and fix */
export async function loadClusterAccess(options: AccessOptions): Promise<ClusterAccess> {
  const nowMs = options.nowMs ?? Date.now;
  if (options.kubeconfig !== undefined && options.kubeconfig !== '') {
    const context = await readKubeconfig(options.kubeconfig, options.context);
    return fromContext(context, { ...options, nowMs });
  }
  if (options.master !== undefined && options.master !== '') {
    const server = parseServer('--master', options.master, 'http:');
    return assemble(
      { server, source: `--master ${server.href}`, namespace: undefined, proxy: undefined },
      { tls: plainTls(), nowMs },
    );
  }
  return inCluster(options, nowMs);
}

async function fromContext(
  context: KubeconfigContext,
  options: AccessOptions & { readonly nowMs: () => number },
): Promise<ClusterAccess> {
  const { nowMs } = options;
  const where = `kubeconfig ${context.path}, context "${context.context}"`;
  const master = options.master !== undefined && options.master !== '' ? options.master : undefined;
  const usesTls =
    context.ca !== undefined ||
    context.cert !== undefined ||
    context.skipVerify ||
    context.servername !== undefined;
  if (master === undefined && context.server === '')
    throw new UsageError(
      `${where}: its cluster has no server; run: kubectl config set-cluster NAME --server=URL`,
    );
  const server = parseServer(
    master === undefined ? `${where}: server` : '--master',
    master ?? context.server,
    usesTls ? 'https:' : 'http:',
  );
  if ((context.cert === undefined) !== (context.key === undefined)) {
    throw new UsageError(
      `${where}: its user has a ${context.cert ? 'client-certificate but no client-key' : 'client-key but no client-certificate'}; give both`,
    );
  }
  const plugin = context.plugin && {
    where,
    kind: context.plugin.kind,
    section: context.plugin.section,
    server: server.href,
    nowMs,
    loadClientNode: options.loadClientNode ?? (() => import('@kubernetes/client-node')),
  };
  return assemble(
    {
      server,
      source: where,
      namespace: context.namespace,
      proxy: parseProxy(where, context.proxyUrl),
    },
    {
      nowMs,
      tls: {
        where,
        // A server given on the command line isn't the one that the kubeconfig's name was meant for
        // (kubectl does the same).
        servername: master === undefined ? context.servername : undefined,
        skipVerify: context.skipVerify,
        ca: context.skipVerify
          ? undefined
          : await open(where, 'certificate-authority', context.ca, nowMs),
        cert: await open(where, 'client-certificate', context.cert, nowMs),
        key: await open(where, 'client-key', context.key, nowMs),
      },
      token: await open(where, 'tokenFile', context.token, nowMs),
      basic: context.basic,
      plugin: plugin && (await openPluginCredentials(plugin)),
    },
  );
}

async function inCluster(options: AccessOptions, nowMs: () => number): Promise<ClusterAccess> {
  const host = options.env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = options.env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host === '' || port === '') {
    throw new UsageError(
      'no cluster: this is not a pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set); give --kubeconfig=FILE or --master=URL',
    );
  }
  const directory = options.serviceAccountDir ?? SERVICE_ACCOUNT_DIR;
  const where = 'in-cluster credentials';
  const hint = 'set automountServiceAccountToken: true for the pod, or give --kubeconfig=FILE';
  const file = (name: string): Promise<CredentialFile> =>
    open(where, name, { kind: 'file', path: `${directory}/${name}` }, nowMs, hint);
  const ca = await file('ca.crt');
  const token = await file('token');
  const namespace = await file('namespace').catch(() => undefined);
  const server = parseServer(
    'KUBERNETES_SERVICE_HOST',
    `https://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    'https:',
  );
  return assemble(
    { server, source: 'in-cluster', namespace: await namespace?.read(), proxy: undefined },
    {
      nowMs,
      tls: { where, servername: undefined, skipVerify: false, ca, cert: undefined, key: undefined },
      token,
    },
  );
}

interface TlsSource {
  readonly where: string;
  readonly servername: string | undefined;
  readonly skipVerify: boolean;
  readonly ca: CredentialFile | undefined;
  readonly cert: CredentialFile | undefined;
  readonly key: CredentialFile | undefined;
}

interface Sources {
  readonly nowMs: () => number;
  readonly tls: TlsSource;
  readonly token?: CredentialFile | undefined;
  readonly basic?: KubeconfigContext['basic'];
  readonly plugin?: PluginCredentials | undefined;
}

function plainTls(): TlsSource {
  return {
    where: '--master',
    servername: undefined,
    skipVerify: false,
    ca: undefined,
    cert: undefined,
    key: undefined,
  };
}

type Place = Pick<ClusterAccess, 'server' | 'source' | 'namespace' | 'proxy'>;

async function assemble(place: Place, sources: Sources): Promise<ClusterAccess> {
  const { tls, token, basic, plugin } = sources;
  const files = [tls.ca, tls.cert, tls.key, token].filter((file) => file !== undefined);
  let held = await readTls(tls, plugin);
  checkTls(tls.where, held);

  return {
    ...place,
    async tls() {
      const latest = await readTls(tls, plugin);
      if (latest.ca === held.ca && latest.cert === held.cert && latest.key === held.key)
        return held;
      try {
        checkTls(tls.where, latest);
        held = latest;
      } catch {
        // Certificate and key are two files: between the two writes they don't fit. The next look
        // finds the pair.
      }
      return held;
    },
    async authorization() {
      if (plugin) return (await plugin.current()).authorization;
      if (token) return `Bearer ${await token.read()}`;
      if (basic)
        return `Basic ${Buffer.from(`${basic.username}:${basic.password}`).toString('base64')}`;
      return undefined;
    },
    async refresh() {
      for (const file of files) file.expire();
      await plugin?.renew();
    },
  };
}

async function readTls(
  source: TlsSource,
  plugin: PluginCredentials | undefined,
): Promise<TlsMaterial> {
  const given = await plugin?.current();
  return {
    ca: await source.ca?.read(),
    cert: given?.cert ?? (await source.cert?.read()),
    key: given?.key ?? (await source.key?.read()),
    servername: source.servername,
    skipVerify: source.skipVerify,
  };
}

function checkTls(where: string, { ca, cert, key }: TlsMaterial): void {
  try {
    createSecureContext({ ca, cert, key });
  } catch (cause) {
    throw new UsageError(
      `${where}: certificate, key or CA can't be used: ${reasonOf(cause)}; check that they are PEM and that the key belongs to the certificate`,
      { cause },
    );
  }
}

async function open(
  where: string,
  what: string,
  material: Material,
  nowMs: () => number,
  hint?: string,
): Promise<CredentialFile>;
async function open(
  where: string,
  what: string,
  material: Material | undefined,
  nowMs: () => number,
): Promise<CredentialFile | undefined>;
async function open(
  where: string,
  what: string,
  material: Material | undefined,
  nowMs: () => number,
  hint?: string,
): Promise<CredentialFile | undefined> {
  if (material === undefined) return undefined;
  if (material.kind === 'data')
    return { path: '', read: () => Promise.resolve(material.text), expire: () => {} };
  try {
    return await openCredentialFile(material.path, nowMs);
  } catch (cause) {
    throw new UsageError(
      `${where}: ${what} ${material.path}: ${reasonOf(cause)}${hint === undefined ? '; make the file readable or correct its path' : `; ${hint}`}`,
      { cause },
    );
  }
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
