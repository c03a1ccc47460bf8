import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { parse, stringify } from 'yaml';
import { textAt } from '../conformance/connection.ts';
import type { RealControlPlane } from './real-control-plane.ts';

/** Writes a kubeconfig with a token of a service account, beside the administrator's.
 * @returns its path */
export async function accountKubeconfig(
  plane: RealControlPlane,
  { namespace, name }: { readonly namespace: string; readonly name: string },
): Promise<string> {
  const tokens = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;
  const reply = await plane.api.call('POST', tokens, {
    body: { spec: { expirationSeconds: 7200 } },
  });
  const token = textAt(reply.body, 'status', 'token');
  const admin = parse(await readFile(plane.kubeconfig, 'utf8')) as { users: object[] };
  const [user] = admin.users;
  const path = join(dirname(plane.kubeconfig), `${namespace}-${name}.kubeconfig`);
  await writeFile(path, stringify({ ...admin, users: [{ ...user, user: { token } }] }));
  return path;
}
