/* npm run image:check [-- --builder docker|buildah]: builds the images of the Dockerfile and starts
 * what is in them: --version, --help, and sutler beside the sample driver, which
 * provisions one claim. Without --builder it follows the Dockerfile on this machine and needs no
 * docker (follow-dockerfile.mjs). */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { followDockerfile } from './follow-dockerfile.mjs';
import { fail, findRedis, outputOf, root } from './setup.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sutler-image-'));
const children = new Set();
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});
const print = (line) => process.stderr.write(`${line}\n`);

/** How an image is built, and how its program is started with arguments. The folder of the check is
 * at its own path in the container, which shares the machine's network. */
const builders = {
  docker() {
    const images = build('docker');
    const user = `${process.getuid()}:${process.getgid()}`;
    const shared = ['--network=host', `--user=${user}`, `--volume=${folder}:${folder}`];
    const options = ['--rm', `--env=TMPDIR=${folder}`, ...shared];
    return (image, args) => ({ command: ['docker', 'run', ...options, images[image], ...args] });
  },
  buildah() {
    const images = build('buildah');
    const options = [`--volume=${folder}:${folder}`, `--env=TMPDIR=${folder}`, '--network=host'];
    return (image, args) => {
      const container = makeContainer(images[image]);
      const { Entrypoint } = JSON.parse(outputOf('buildah', 'inspect', container)).OCIv1.config;
      return { command: ['buildah', 'run', ...options, container, '--', ...Entrypoint, ...args] };
    };
  },
};

/** Makes a container of buildah's, which goes at the end. */
function makeContainer(image) {
  const container = outputOf('buildah', 'from', image);
  process.on('exit', () => spawnSync('buildah', ['rm', container]));
  return container;
}

/** Builds each image.
 * @returns their names */
function build(program) {
  const images = { sutler: 'sutler:check', 'sample-driver': 'sutler-sample-driver:check' };
  for (const [target, tag] of Object.entries(images))
    outputOf(program, 'build', `--target=${target}`, `--tag=${tag}`, '.');
  return images;
}

/** Fails where a program of the image may change its user: none needs to. */
function checkUsers(builder) {
  const find = 'find / -xdev -type f -perm /6000 2>/dev/null || true';
  const found =
    builder === 'docker'
      ? outputOf('docker', 'run', '--rm', '--entrypoint=sh', 'sutler:check', '-c', find)
      : outputOf('buildah', 'run', makeContainer('sutler:check'), '--', 'sh', '-c', find);
  if (found !== '') fail(`setuid or setgid: ${found}: the Dockerfile has to drop that`);
  print('image: no program may change its user');
}

/** Starts the program of an image.
 * @returns the child, with what it has printed so far in `output` */
function start(image, args) {
  const { command, options } = commandOf(image, args);
  const child = spawn(command[0], command.slice(1), options);
  children.add(child);
  child.output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => (child.output += chunk));
  child.ended = once(child, 'close').then(([code]) => code);
  void child.ended.finally(() => children.delete(child));
  return child;
}

async function expectOutput(args, pattern) {
  const child = start('sutler', args);
  if ((await child.ended) !== 0 || !pattern.test(child.output))
    fail(`the image with ${args.join(' ')} should print ${pattern}:\n${child.output}`);
  print(`image ${args.join(' ')}: as expected`);
}

async function until(isTrue, what, child) {
  for (const endMs = Date.now() + 30_000; Date.now() < endMs; await sleep(50)) {
    if (await isTrue()) return;
    if (child.exitCode !== null) break;
  }
  fail(`${what} did not happen in 30 s:\n${child.output}`);
}

/** Calls the API server of a kubeconfig. */
function clientOf(kubeconfig) {
  const { clusters, users } = JSON.parse(readFileSync(kubeconfig, 'utf8'));
  const { server } = clusters[0].cluster;
  return async (path, body) => {
    const sent = request(`${server}${path}`, {
      method: body ? 'POST' : 'GET',
      headers: {
        authorization: `Bearer ${users[0].user.token}`,
        'content-type': 'application/json',
      },
    });
    sent.end(body && JSON.stringify(body));
    const [answer] = await once(sent, 'response');
    let text = '';
    for await (const chunk of answer) text += chunk;
    if (answer.statusCode >= 300) fail(`${path}: ${text}`);
    return JSON.parse(text);
  };
}

async function checkProvisioning() {
  const kubeconfig = join(folder, 'kubeconfig');
  const socket = join(folder, 'csi.sock');
  const api = start('sample-driver', ['sandbox-api', `--kubeconfig-out=${kubeconfig}`]);
  const data = `--data-dir=${join(folder, 'volumes')}`;
  const driver = start('sample-driver', ['sandbox-driver', `--csi-address=${socket}`, data]);
  const hasServer = () => existsSync(kubeconfig) && statSync(kubeconfig).size > 0;
  await until(hasServer, 'the API of the sandbox: start', api);
  await until(() => existsSync(socket), 'the sample driver: start', driver);
  const call = clientOf(kubeconfig);
  await call('/apis/storage.k8s.io/v1/storageclasses', {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: 'sample' },
    provisioner: 'sample.csi.sutler.dev',
  });
  const claims = '/api/v1/namespaces/default/persistentvolumeclaims';
  await call(claims, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: 'first' },
    spec: {
      storageClassName: 'sample',
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: '1Gi' } },
    },
  });
  const sutler = start('sutler', [`--csi-address=${socket}`, `--kubeconfig=${kubeconfig}`]);
  const isBound = async () => (await call(`${claims}/first`)).status?.phase === 'Bound';
  await until(isBound, 'image --csi-address=… : a Bound claim', sutler);
  print('image --csi-address=…: the claim is Bound');
  sutler.kill('SIGTERM');
  // buildah passes no signal on: it kills what it runs.
  if ((await sutler.ended) !== 0 && builder !== 'buildah')
    fail(`sutler did not stop on SIGTERM:\n${sutler.output}`);
  for (const child of [api, driver]) child.kill('SIGTERM');
  await Promise.all([api.ended, driver.ended]);
}

const { builder } = parseArgs({ options: { builder: { type: 'string' } } }).values;
if (builder !== undefined && !(builder in builders))
  fail(`there is no builder ${builder}; choose ${Object.keys(builders).join(' or ')}`);
if (builder === undefined) findRedis();
const commandOf = builder === undefined ? followDockerfile(folder) : builders[builder]();
if (builder !== undefined) checkUsers(builder);
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
await expectOutput(['--version'], new RegExp(version.replaceAll('.', '\\.')));
await expectOutput(['--help'], /Usage: sutler/);
await checkProvisioning();
print('The images build and run.');
