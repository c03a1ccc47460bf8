/* npm start: the sandbox, or with --kubeconfig the same processes against a real cluster and
 * driver. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { build, fail, findRedis, install, root } from './setup.mjs';

const args = process.argv.slice(2);
/** --name=value or --name value; an empty value is none. */
const hasFlag = (name) => args.some((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`));
install();
build();
if (!hasFlag('redis-url')) findRedis();
if (args.some((arg) => /^--(kubeconfig|master)=$/.test(arg)))
  fail('--kubeconfig and --master need a value; leave them out for the sandbox');
const real = hasFlag('kubeconfig') || hasFlag('master');
const child = spawn(
  process.execPath,
  [
    real ? join(root, 'dist', 'cli.js') : join(root, 'dist-dev', 'sandbox', 'cli.js'),
    real ? 'all' : 'sandbox',
    ...args,
  ],
  {
    // The channel tells the child when this process is gone.
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    // A cluster is touched only when the command line names it.
    env: real ? process.env : { ...process.env, KUBECONFIG: '' },
  },
);
// Ctrl-C reaches the child by itself, being in the same process group; other signals are passed on.
// Either way the child decides when it is over.
process.on('SIGINT', () => undefined);
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
// npm does not hand on every signal that ends it: without it nobody is left to want what runs here.
const parent = process.ppid;
setInterval(() => process.ppid !== parent && child.kill('SIGTERM'), 1_000).unref();
child.on('exit', (code, signal) => process.exit(code ?? (signal === null ? 1 : 128)));
