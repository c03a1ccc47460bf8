/* Preloaded into a process that a test or a bench starts (node --import): it reads the files of the
 * service account that Kubernetes mounts from the folder in SERVICE_ACCOUNT_DIR. */
import promises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

const MOUNT = '/var/run/secrets/kubernetes.io/serviceaccount/';
const folder = process.env['SERVICE_ACCOUNT_DIR'] ?? '';
const original = promises.readFile;

Object.assign(promises, {
  readFile: (path: unknown, options: BufferEncoding) =>
    original(
      typeof path === 'string' && path.startsWith(MOUNT)
        ? `${folder}/${path.slice(MOUNT.length)}`
        : (path as string),
      options,
    ),
});
syncBuiltinESMExports();
