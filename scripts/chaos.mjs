/* npm run chaos: set-up, then the compiled chaos command. npm run chaos -- --help lists its flags.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { build, findRedis, install, root } from './setup.mjs';

install();
build();
findRedis();
const child = spawn(
  process.execPath,
  [join(root, 'dist-dev', 'chaos', 'main.js'), ...process.argv.slice(2)],
  { stdio: 'inherit' },
);
// Ctrl-C reaches the child by itself; it ends what it started before it ends.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.on('exit', (code, signal) => process.exit(code ?? (signal === null ? 1 : 128)));
