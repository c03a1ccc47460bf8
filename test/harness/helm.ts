import { execFileSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments, stringify } from 'yaml';
import type { ManifestObject } from './real-manifests.ts';

export const CHART = fileURLToPath(new URL('../../../charts/sutler', import.meta.url));

/** The helm to render with: HELM, or the one on PATH. */
export const HELM = [
  process.env['HELM'] ?? '',
  ...(process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'helm')),
].find((path) => path !== '' && isProgram(path));

/** Why tests of the chart don't run, if there is no helm. */
export const NO_HELM =
  HELM === undefined && 'the chart was not tried: no HELM, and no helm on PATH';

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** What `helm template` makes of the chart with these values, as text.
 * @throws Error with what helm says, if it refuses them */
export function templateText(values: object = {}, namespace = 'sutler'): string {
  // Without a cluster helm takes the version of Kubernetes that it was built for.
  const args = ['-n', namespace, '--kube-version=1.36.0', '-f', '-'];
  return helm(['template', 'sutler', CHART, ...args], stringify(values));
}

export function template(values: object = {}): readonly ManifestObject[] {
  return parseAllDocuments(templateText(values)).flatMap((each) => {
    const object = each.toJS() as ManifestObject | null;
    return object === null ? [] : [object];
  });
}

export function helm(args: readonly string[], input = ''): string {
  return execFileSync(HELM ?? '', args, { encoding: 'utf8', stdio: 'pipe', input });
}
