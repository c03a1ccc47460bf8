import type { KubeConfig } from '@kubernetes/client-node';
import { UsageError } from '../runtime/flags.ts';
import type { Fields } from '../runtime/json.ts';
import { reasonOf } from './kubeconfig.ts';

/** A credential that a plug-in returned. */
export interface PluginCredential {
  readonly authorization: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

export interface PluginCredentials {
  /** The current credential. Runs the plug-in if the last one has expired. */
  current(): Promise<PluginCredential>;
  /** Runs the plug-in again, because the server refused its credential. */
  renew(): Promise<void>;
}

export interface PluginOptions {
  /** Names kubeconfig and context in errors. */
  readonly where: string;
  readonly kind: 'exec' | 'auth-provider';
  readonly section: Fields;
  readonly server: string;
  readonly nowMs: () => number;
  /** Loading client-node costs 90 MB of memory, so it is loaded only for a kubeconfig with a
   * plug-in. */
  readonly loadClientNode: () => Promise<{ readonly KubeConfig: new () => KubeConfig }>;
}

/** client-node, which checks the expiry, is asked at most this often: each call of it creates
 * an HTTP agent. */
const ASK_AFTER_MS = 10_000;
/** Least time between two runs after refusals. */
const RENEW_AFTER_MS = 5_000;

/** Runs the plug-in of a user with `exec` or `auth-provider` by client-node. Concurrent requests
 * share one run.
 * @throws UsageError if the first run fails */
export async function openPluginCredentials(options: PluginOptions): Promise<PluginCredentials> {
  const { KubeConfig } = await options.loadClientNode();
  const { where, nowMs } = options;
  let config = configure(new KubeConfig(), options);
  let last: PluginCredential | undefined;
  let askedAtMs = -Infinity;
  let renewedAtMs = -Infinity;
  let running: Promise<PluginCredential> | undefined;

  const ask = async (): Promise<PluginCredential> => {
    try {
      const request: { headers: Record<string, string>; cert?: unknown; key?: unknown } = {
        headers: {},
      };
      await config.applyToHTTPSOptions(request);
      last = {
        authorization: request.headers['Authorization'],
        cert: asText(request.cert),
        key: asText(request.key),
      };
      askedAtMs = nowMs();
      return last;
    } catch (cause) {
      throw new UsageError(
        `${where}: its ${options.kind} plugin failed: ${reasonOf(cause)}; ` +
          'run its command by hand, or log in again',
        { cause },
      );
    } finally {
      running = undefined;
    }
  };
  const current = (): Promise<PluginCredential> => {
    if (last && nowMs() - askedAtMs < ASK_AFTER_MS) return Promise.resolve(last);
    return (running ??= ask());
  };

  await current();
  return {
    current,
    async renew() {
      if (nowMs() - renewedAtMs < RENEW_AFTER_MS) return;
      renewedAtMs = nowMs();
      // A KubeConfig caches the credential, so only a new one runs the plug-in again.
      config = configure(new KubeConfig(), options);
      askedAtMs = -Infinity;
      await current();
    },
  };
}

function configure(
  config: KubeConfig,
  { kind, section, server, where }: PluginOptions,
): KubeConfig {
  const user =
    kind === 'exec'
      ? { name: 'user', exec: withExecInfo(section, server, where) }
      : { name: 'user', authProvider: section };
  config.loadFromOptions({
    clusters: [{ name: 'cluster', server, skipTLSVerify: false }],
    users: [user],
    contexts: [{ name: 'context', cluster: 'cluster', user: 'user' }],
    currentContext: 'context',
  });
  return config;
}

/** Adds the environment variable from which plug-ins read their API version; client-node does not
 * set it. */
function withExecInfo(section: Fields, server: string, where: string): Fields {
  if (typeof section['command'] !== 'string')
    throw new UsageError(`${where}: its exec section names no command`);
  const info = {
    kind: 'ExecCredential',
    apiVersion: section['apiVersion'] ?? 'client.authentication.k8s.io/v1',
    spec: {
      interactive: false,
      ...(section['provideClusterInfo'] === true ? { cluster: { server } } : {}),
    },
  };
  const env = Array.isArray(section['env']) ? (section['env'] as unknown[]) : [];
  return {
    ...section,
    env: [{ name: 'KUBERNETES_EXEC_INFO', value: JSON.stringify(info) }, ...env],
  };
}

function asText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return Buffer.isBuffer(value) ? value.toString('utf8') : undefined;
}
