/* npm run test:sanity -- --csi-sanity PATH --driver PATH: csi-sanity on a driver, then through the
 * gateway, compared. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { build, install, root } from './setup.mjs';

install();
build();
const child = spawn(
  process.execPath,
  [join(root, 'dist-dev', 'test', 'sanity', 'main.js'), ...process.argv.slice(2)],
  {
    stdio: 'inherit',
  },
);
// Ctrl-C reaches the child by itself; it ends what it started before it ends.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.on('exit', (code, signal) => process.exit(code ?? (signal === null ? 1 : 128)));
