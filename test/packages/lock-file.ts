import { readFileSync } from 'node:fs';

// Tests run from dist-dev/test/packages.
const ROOT = new URL('../../../', import.meta.url);

/** One package in package-lock.json. */
export interface LockedPackage {
  readonly resolved?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

/** Every package of package-lock.json by its folder, such as node_modules/express. The project
 * itself is left out. */
export const lockedPackages: ReadonlyMap<string, LockedPackage> = new Map(
  Object.entries(
    (readJson('package-lock.json') as { packages: Record<string, LockedPackage> }).packages,
  ).filter(([folder]) => folder !== ''),
);

/** Names of the packages that package.json lists under `dependencies`. */
export const directDependencies: readonly string[] = Object.keys(
  (readJson('package.json') as { dependencies: Record<string, string> }).dependencies,
);

/** Folders of the named direct dependencies and of all that they need. */
export function neededBy(names: readonly string[]): ReadonlySet<string> {
  const found = new Set<string>();
  const visit = (from: string, name: string): void => {
    const folder = resolveFolder(from, name);
    if (folder === undefined || found.has(folder)) return;
    found.add(folder);
    const { dependencies, optionalDependencies, peerDependencies } =
      lockedPackages.get(folder) ?? {};
    for (const each of [dependencies, optionalDependencies, peerDependencies])
      for (const needed of Object.keys(each ?? {})) visit(folder, needed);
  };
  for (const name of names) visit('', name);
  return found;
}

/** The folder that Node finds for a package that is imported in a folder. */
function resolveFolder(from: string, name: string): string | undefined {
  const folder = `${from === '' ? '' : `${from}/`}node_modules/${name}`;
  if (lockedPackages.has(folder)) return folder;
  if (from === '') return undefined;
  return resolveFolder(from.slice(0, Math.max(from.lastIndexOf('/node_modules/'), 0)), name);
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(new URL(path, ROOT), 'utf8'));
}
