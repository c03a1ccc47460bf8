/* npm start: runs the sandbox. With --kubeconfig, runs sutler on a real cluster and driver. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { build, fail, findRedis, install, root } from './setup.mjs';

const args = process.argv.slice(2);
/** Whether the arguments have --name=value or --name value. */
const hasFlag = (name) => args.some((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`));
install();
build();
if (!hasFlag('redis-url')) findRedis();
if (args.some((arg) => /^--(kubeconfig|master)=$/.test(arg)))
  fail('--kubeconfig and --master need a value; leave them out for the sandbox');
const real = hasFlag('kubeconfig') || hasFlag('master');
// Upstream's container, whose place `sutler all` takes, has no dashboard.
if (real && !hasFlag('dashboard-address')) args.push('--dashboard-address=127.0.0.1:8088');
const child = spawn(
  process.execPath,
  [
    real ? join(root, 'dist', 'cli.js') : join(root, 'dist-dev', 'sandbox', 'cli.js'),
    real ? 'all' : 'sandbox',
    ...args,
  ],
  {
    // The IPC channel tells the child when this process ends.
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    // The cluster of KUBECONFIG is used only with --kubeconfig or --master.
    env: real ? process.env : { ...process.env, KUBECONFIG: '' },
  },
);
// Ctrl-C also reaches the child, which is in the same process group; other signals are passed on.
// This script exits when the child does.
process.on('SIGINT', () => undefined);
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
// npm does not pass on every signal that ends it, so the child is stopped when npm has exited.
const parent = process.ppid;
setInterval(() => process.ppid !== parent && child.kill('SIGTERM'), 1_000).unref();
child.on('exit', (code, signal) => process.exit(code ?? (signal === null ? 1 : 128)));
