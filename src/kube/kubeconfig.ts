import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import { isFields, type Fields } from '../runtime/json.ts';

/** Content in the kubeconfig itself, or the absolute path of a file. */
export type Material =
  | { readonly kind: 'data'; readonly text: string }
  | { readonly kind: 'file'; readonly path: string };

/** The context of a kubeconfig that is used, with its cluster and user. */
export interface KubeconfigContext {
  readonly path: string;
  readonly context: string;
  readonly namespace: string | undefined;
  /** Name of the cluster. */
  readonly cluster: string;
  /** Name of the user; '' if there is none. */
  readonly user: string;
  readonly server: string;
  readonly ca: Material | undefined;
  readonly servername: string | undefined;
  readonly skipVerify: boolean;
  readonly proxyUrl: string | undefined;
  readonly cert: Material | undefined;
  readonly key: Material | undefined;
  readonly token: Material | undefined;
  readonly basic: { readonly username: string; readonly password: string } | undefined;
  /** The `exec` or `auth-provider` section, which plugin-credentials.ts runs. */
  readonly plugin:
    { readonly kind: 'exec' | 'auth-provider'; readonly section: Fields } | undefined;
}

/** Reads a kubeconfig and selects its current context, or the one with the given name.
 * @throws UsageError: one line that names file, context and fix */
export async function readKubeconfig(
  path: string,
  contextName?: string,
): Promise<KubeconfigContext> {
  const file = new Section(`kubeconfig ${path}`, await parse(path, await readText(path)));
  const name = contextName ?? file.text('current-context') ?? '';
  if (name === '')
    throw file.fail('no current-context is set; run: kubectl config use-context NAME');
  const fields = file.named('contexts', name, 'context');
  if (fields === undefined)
    throw file.fail(`context "${name}" is not in it; run: kubectl config get-contexts`);
  const context = new Section(`kubeconfig ${path}, context "${name}"`, fields);
  const directory = dirname(resolve(path));
  return {
    path,
    context: name,
    namespace: context.text('namespace'),
    ...readCluster(file, context, directory),
    ...readUser(file, context, directory),
  };
}

function readCluster(file: Section, context: Section, directory: string) {
  const name = context.text('cluster') ?? '';
  const fields = file.named('clusters', name, 'cluster');
  if (fields === undefined)
    throw context.fail(`its cluster "${name}" is not in the file; run: kubectl config set-cluster`);
  const cluster = new Section(`${context.where}, cluster "${name}"`, fields);
  return {
    cluster: name,
    server: cluster.text('server') ?? '',
    ca: cluster.material('certificate-authority', directory),
    servername: cluster.text('tls-server-name'),
    skipVerify: fields['insecure-skip-tls-verify'] === true,
    proxyUrl: cluster.text('proxy-url'),
  };
}

function readUser(file: Section, context: Section, directory: string) {
  const name = context.text('user') ?? '';
  const fields = name === '' ? {} : file.named('users', name, 'user');
  if (fields === undefined)
    throw context.fail(
      `its user "${name}" is not in the file; run: kubectl config set-credentials`,
    );
  const user = new Section(`${context.where}, user "${name}"`, fields);
  if (['as', 'as-uid', 'as-groups', 'as-user-extra'].some((key) => fields[key] !== undefined)) {
    throw user.fail(
      'impersonation ("as") is not supported; use a user with credentials of its own',
    );
  }
  const username = user.text('username');
  return {
    user: name,
    cert: user.material('client-certificate', directory),
    key: user.material('client-key', directory),
    token: user.token(directory),
    basic: username === undefined ? undefined : { username, password: user.text('password') ?? '' },
    plugin: readPlugin(user, directory),
  };
}

function readPlugin(user: Section, directory: string): KubeconfigContext['plugin'] {
  const exec = user.fields('exec');
  if (exec !== undefined) {
    const command = commandPath(exec['command'], directory);
    return { kind: 'exec', section: { ...exec, command } };
  }
  const section = user.fields('auth-provider');
  return section && { kind: 'auth-provider', section };
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

async function parse(path: string, text: string): Promise<Fields> {
  // In a cluster there is no kubeconfig, and nothing else needs this package.
  const { load } = await import('js-yaml');
  let value: unknown;
  try {
    value = load(text);
  } catch (cause) {
    throw new UsageError(
      `kubeconfig ${path}: not YAML: ${reasonOf(cause)}; ${checkCommand(path)}`,
      { cause },
    );
  }
  if (!isFields(value))
    throw new UsageError(
      `kubeconfig ${path}: not a kubeconfig, it contains no mapping; ${checkCommand(path)}`,
    );
  return value;
}

function checkCommand(path: string): string {
  return `check it with: kubectl config view --kubeconfig=${path}`;
}

/** A relative command with a slash is relative to the kubeconfig; one without a slash is searched
 * on PATH. */
function commandPath(command: unknown, directory: string): unknown {
  return typeof command === 'string' && command.includes('/')
    ? resolve(directory, command)
    : command;
}

/** One part of the file; `where` names it in errors. */
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

  /** The entry with the given name in a list like clusters: [{name, cluster: {…}}]. */
  named(list: string, name: string, key: string): Fields | undefined {
    const entries = this.#fields[list] ?? [];
    if (!Array.isArray(entries)) throw this.fail(`${list} is not a list`);
    const entry: unknown = entries.find(
      (candidate: unknown) => isFields(candidate) && candidate['name'] === name,
    );
    const fields = isFields(entry) ? (entry[key] ?? {}) : undefined;
    return isFields(fields) ? fields : undefined;
  }

  /** The value of KEY-data (base64), or else the file KEY, as in kubectl. */
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

  /** The file takes precedence over the text, as in kubectl, since files are renewed. */
  token(directory: string): Material | undefined {
    const path = this.text('tokenFile');
    if (path !== undefined) return { kind: 'file', path: resolve(directory, path) };
    const text = this.text('token');
    return text === undefined ? undefined : { kind: 'data', text };
  }
}

/** The first line of an error's message. */
export function reasonOf(error: unknown): string {
  return messageOf(error).split('\n', 1)[0] ?? '';
}
