import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { load } from 'js-yaml';
import { UsageError } from '../runtime/flags.ts';

/** Content given in the kubeconfig itself, or a file (absolute path). */
export type Material =
  | { readonly kind: 'data'; readonly text: string }
  | { readonly kind: 'file'; readonly path: string };

/** The one context of a kubeconfig that is used. */
export interface KubeconfigContext {
  readonly path: string;
  readonly context: string;
  readonly namespace: string | undefined;
  readonly server: string;
  readonly ca: Material | undefined;
  readonly servername: string | undefined;
  readonly skipVerify: boolean;
  readonly proxyUrl: string | undefined;
  readonly cert: Material | undefined;
  readonly key: Material | undefined;
  readonly token: Material | undefined;
  readonly basic: { readonly username: string; readonly password: string } | undefined;
  /** The `exec` or `auth-provider` section, as it stands; run by plugin-credentials.ts. */
  readonly plugin:
    | { readonly kind: 'exec' | 'auth-provider'; readonly user: string; readonly section: Fields }
    | undefined;
}

export type Fields = Readonly<Record<string, unknown>>;

/** Reads a kubeconfig and picks its current context, or the one named.
 * @throws UsageError: one line that names file, context and what to do */
export async function readKubeconfig(
  path: string,
  contextName?: string,
): Promise<KubeconfigContext> {
  const file = new Section(`kubeconfig ${path}`, parse(path, await readText(path)));
  const name = contextName ?? file.text('current-context') ?? '';
  if (name === '')
    throw file.fail('no current-context is set; run: kubectl config use-context NAME');
  const context = file.named('contexts', name, 'context');
  if (context === undefined)
    throw file.fail(`context "${name}" is not in it; run: kubectl config get-contexts`);

  const where = `kubeconfig ${path}, context "${name}"`;
  const entry = new Section(where, context);
  const clusterName = entry.text('cluster') ?? '';
  const clusterFields = file.named('clusters', clusterName, 'cluster');
  if (clusterFields === undefined)
    throw entry.fail(
      `its cluster "${clusterName}" is not in the file; run: kubectl config set-cluster`,
    );
  const userName = entry.text('user') ?? '';
  const userFields = userName === '' ? {} : file.named('users', userName, 'user');
  if (userFields === undefined)
    throw entry.fail(
      `its user "${userName}" is not in the file; run: kubectl config set-credentials`,
    );

  const directory = dirname(resolve(path));
  const cluster = new Section(`${where}, cluster "${clusterName}"`, clusterFields);
  const user = new Section(`${where}, user "${userName}"`, userFields);
  if (['as', 'as-uid', 'as-groups', 'as-user-extra'].some((key) => userFields[key] !== undefined)) {
    throw user.fail(
      'impersonation ("as") is not supported; use a user with credentials of its own',
    );
  }
  const username = user.text('username');
  const exec = user.fields('exec');
  const provider = user.fields('auth-provider');
  return {
    path,
    context: name,
    namespace: entry.text('namespace'),
    server: cluster.text('server') ?? '',
    ca: cluster.material('certificate-authority', directory),
    servername: cluster.text('tls-server-name'),
    skipVerify: clusterFields['insecure-skip-tls-verify'] === true,
    proxyUrl: cluster.text('proxy-url'),
    cert: user.material('client-certificate', directory),
    key: user.material('client-key', directory),
    token: user.token(directory),
    basic: username === undefined ? undefined : { username, password: user.text('password') ?? '' },
    plugin: exec
      ? {
          kind: 'exec',
          user: userName,
          section: { ...exec, command: commandPath(exec['command'], directory) },
        }
      : provider && { kind: 'auth-provider', user: userName, section: provider },
  };
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const hint = path.includes(':')
      ? '; give one file, lists are not read'
      : '; check --kubeconfig and the environment variable KUBECONFIG';
    throw new UsageError(`kubeconfig ${path}: ${reasonOf(cause)}${hint}`, { cause });
  }
}

function parse(path: string, text: string): Fields {
  let value: unknown;
  try {
    value = load(text);
  } catch (cause) {
    throw new UsageError(
      `kubeconfig ${path}: not YAML: ${reasonOf(cause)}; check it with: kubectl config view --kubeconfig=${path}`,
      {
        cause,
      },
    );
  }
  if (!isFields(value))
    throw new UsageError(
      `kubeconfig ${path}: not a kubeconfig, it holds no mapping; check it with: kubectl config view --kubeconfig=${path}`,
    );
  return value;
}

/** A relative command with a slash is meant relative to the kubeconfig; a bare one is looked up on
 * PATH. */
function commandPath(command: unknown, directory: string): unknown {
  return typeof command === 'string' && command.includes('/')
    ? resolve(directory, command)
    : command;
}

/** Fields of one part of the file, with the words that errors about it begin with. */
class Section {
  readonly where: string;
  readonly #fields: Fields;

  constructor(where: string, fields: Fields) {
    this.where = where;
    this.#fields = fields;
  }

  fail(what: string): UsageError {
    return new UsageError(`${this.where}: ${what}`);
  }

  text(key: string): string | undefined {
    const value = this.#fields[key];
    if (value === undefined || value === null || value === '') return undefined;
    if (typeof value === 'string') return value;
    throw this.fail(`${key} is not a text; put it in quotes`);
  }

  fields(key: string): Fields | undefined {
    const value = this.#fields[key];
    if (value === undefined || value === null) return undefined;
    if (isFields(value)) return value;
    throw this.fail(`${key} is not a mapping`);
  }

  /** Entry of a list like clusters: [{name, cluster: {…}}]. */
  named(list: string, name: string, key: string): Fields | undefined {
    const entries = this.#fields[list] ?? [];
    if (!Array.isArray(entries)) throw this.fail(`${list} is not a list`);
    const entry: unknown = entries.find(
      (candidate: unknown) => isFields(candidate) && candidate['name'] === name,
    );
    const fields = isFields(entry) ? (entry[key] ?? {}) : undefined;
    return isFields(fields) ? fields : undefined;
  }

  /** KEY-data (base64) or the file KEY; the data wins, as in kubectl. */
  material(key: string, directory: string): Material | undefined {
    const data = this.text(`${key}-data`);
    if (data !== undefined) {
      const text = Buffer.from(data, 'base64').toString('utf8');
      if (!text.includes('-----BEGIN')) throw this.fail(`${key}-data is not base64 of a PEM block`);
      return { kind: 'data', text };
    }
    const path = this.text(key);
    return path === undefined ? undefined : { kind: 'file', path: resolve(directory, path) };
  }

  /** The file wins, as in kubectl: it is the one that gets renewed. */
  token(directory: string): Material | undefined {
    const path = this.text('tokenFile');
    if (path !== undefined) return { kind: 'file', path: resolve(directory, path) };
    const text = this.text('token');
    return text === undefined ? undefined : { kind: 'data', text };
  }
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** One line of an error. */
export function reasonOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n', 1)[0] ?? '';
}
