/* npm run image:check [-- --sbom FILE]: follows the Dockerfile without docker, in a temporary
 * folder with one folder for each stage. It copies what COPY copies, out of what git has or would
 * add and .dockerignore lets in, runs the RUN steps of npm, npx and node, has sh check the syntax
 * of the others, and then starts what ENTRYPOINT starts: --version, --help, `sutler migrate`, and
 * sutler beside the sample driver's image, which provisions one claim. With --sbom it also writes
 * the list of the npm packages in the image (CycloneDX). It uses the Node and the Redis on PATH. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { fail, findRedis, root } from './setup.mjs';

const { values } = parseArgs({ options: { sbom: { type: 'string' } } });
const folder = mkdtempSync(join(tmpdir(), 'sutler-image-'));
const children = new Set();
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});
const print = (line) => process.stderr.write(`${line}\n`);

/** Only what is named: what this machine sets for npm start or in CI is not in the image. */
const { PATH, HOME } = process.env;

/** A pattern of .dockerignore as a regular expression for a path or a folder above it. */
function patternOf(line) {
  const source = line
    .replace(/^\/|\/$/g, '')
    .replace(/[.+^${}()|[\]\\]/g, '\\$&')
    .replace(/\*\*\/?|\*|\?/g, (each) => (each[1] ? '.*' : each === '*' ? '[^/]*' : '[^/]'));
  return new RegExp(`^${source}(/|$)`);
}

/** Files of the build context: the last line of .dockerignore that matches decides. */
function readContext() {
  const lines = readFileSync(join(root, '.dockerignore'), 'utf8').split('\n');
  const rules = lines
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => ({ isIn: line.startsWith('!'), pattern: patternOf(line.replace(/^!/, '')) }));
  const git = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const { status, stdout } = spawnSync('git', git, { cwd: root, encoding: 'utf8', maxBuffer: 1e8 });
  if (status !== 0) fail('git ls-files failed: run this in a checkout');
  return stdout
    .split('\0')
    .filter((file) => file !== '' && existsSync(join(root, file)))
    .filter((file) => rules.findLast(({ pattern }) => pattern.test(file))?.isIn ?? true);
}

/** The instructions, each with the line where it begins. */
function readInstructions() {
  const instructions = [];
  let open;
  for (const [index, line] of readFileSync(join(root, 'Dockerfile'), 'utf8')
    .split('\n')
    .entries()) {
    if (line.trim() === '' || line.startsWith('#')) continue;
    open ??= { where: `Dockerfile:${index + 1}`, text: '' };
    open.text += line.replace(/\\$/, '');
    if (line.endsWith('\\')) continue;
    const [name, ...words] = open.text.trim().split(/\s+/);
    instructions.push({ ...open, name, words, text: open.text.trim().slice(name.length).trim() });
    open = undefined;
  }
  return instructions;
}

const context = readContext();
const stages = new Map();
/** The path of a file of a stage on this machine. */
const pathIn = (stage, path) =>
  join(stage.root, path.startsWith('/') ? path : join(stage.workdir, path));

function begin({ where, words: [from, , name] }) {
  const base = stages.get(from);
  const stage = { workdir: '/', env: {}, entrypoint: [], ...base, root: join(folder, name) };
  mkdirSync(stage.root);
  if (base) cpSync(base.root, stage.root, { recursive: true, verbatimSymlinks: true });
  stages.set(name, stage);
  print(`${where}: stage ${name}`);
  return stage;
}

function copy(stage, { where, words }) {
  const from = words[0].startsWith('--from=') ? words[0].slice('--from='.length) : undefined;
  const sources = from === undefined ? words.slice(0, -1) : words.slice(1, -1);
  const to = words.at(-1);
  for (const source of sources) {
    const path = from === undefined ? join(root, source) : pathIn(stages.get(from), source);
    const files = context.filter((file) => file === source || file.startsWith(`${source}/`));
    if (from === undefined && files.length === 0)
      fail(`${where}: COPY ${source}: not in the build context; see git status and .dockerignore`);
    if (!existsSync(path)) fail(`${where}: COPY ${source}: the stage ${from} does not make it`);
    const isInto = statSync(path).isFile() && to.endsWith('/');
    const target = pathIn(stage, isInto ? join(to, basename(source)) : to);
    mkdirSync(dirname(target), { recursive: true });
    if (from !== undefined) cpSync(path, target, { recursive: true, verbatimSymlinks: true });
    else
      for (const file of files)
        cpSync(join(root, file), join(target, file.slice(source.length)), { recursive: true });
  }
}

function run(stage, { where, text }) {
  const isOurs = text.split('&&').every((command) => /^\s*(npm|npx|node)\s/.test(command));
  print(`${where}: RUN ${text}${isOurs ? '' : ' (syntax only)'}`);
  const cwd = pathIn(stage, '.');
  mkdirSync(cwd, { recursive: true });
  const { status } = spawnSync('sh', [isOurs ? '-ec' : '-nc', text], {
    cwd,
    env: { PATH, HOME, ...stage.env },
    stdio: ['ignore', 2, 2],
  });
  if (status !== 0) fail(`${where}: RUN ${text} failed: see its output above`);
}

const handlers = {
  COPY: copy,
  RUN: run,
  WORKDIR: (stage, { text }) => (stage.workdir = text),
  ENV: (stage, { text }) => Object.assign(stage.env, Object.fromEntries([text.split('=')])),
  ENTRYPOINT: (stage, { text }) => (stage.entrypoint = JSON.parse(text)),
  CMD: () => undefined,
};

/** Builds all stages.
 * @returns the last one, which is the image */
function buildStages() {
  let stage;
  for (const instruction of readInstructions()) {
    if (instruction.name === 'FROM') stage = begin(instruction);
    else if (handlers[instruction.name]) handlers[instruction.name](stage, instruction);
    else fail(`${instruction.where}: scripts/image-check.mjs does not know ${instruction.name}`);
  }
  return stage;
}

/** Starts an image's program.
 * @returns the child, with what it has printed so far in `output` */
function start(stage, args) {
  const [program, ...rest] = stage.entrypoint;
  const child = spawn(
    program,
    [...rest.map((each) => (each.startsWith('/') ? pathIn(stage, each) : each)), ...args],
    { cwd: pathIn(stage, '.'), env: { PATH, TMPDIR: folder, ...stage.env } },
  );
  children.add(child);
  child.output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => (child.output += chunk));
  child.ended = once(child, 'close').then(([code]) => code);
  void child.ended.finally(() => children.delete(child));
  return child;
}

async function expectOutput(stage, args, pattern) {
  const child = start(stage, args);
  if ((await child.ended) !== 0 || !pattern.test(child.output))
    fail(`the image with ${args.join(' ')} should print ${pattern}:\n${child.output}`);
  print(`image ${args.join(' ')}: as expected`);
}

const MANIFEST = `
apiVersion: apps/v1
kind: Deployment
metadata: { name: shop-controller, namespace: storage }
spec:
  selector: { matchLabels: { app: shop } }
  template:
    metadata: { labels: { app: shop } }
    spec:
      containers:
        - { name: shop-driver, image: 'example.com/shop:v1' }
        - name: csi-provisioner
          image: example.com/sig/csi-provisioner:v6.3.0
          args: [--csi-address=/csi/csi.sock, --leader-election]
          volumeMounts: [{ name: socket, mountPath: /csi }]
      volumes: [{ name: socket, emptyDir: {} }]
`;

async function checkMigrate(image) {
  const file = join(folder, 'driver.yaml');
  const out = join(folder, 'migration');
  writeFileSync(file, MANIFEST);
  const args = ['migrate', file, '--driver-name=shop.example', `--out=${out}`];
  await expectOutput(image, args, /kubectl apply -k/);
  if (!existsSync(join(out, 'beside'))) fail(`sutler migrate wrote no ${out}/beside`);
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
  const { server, 'certificate-authority-data': authority } = clusters[0].cluster;
  return async (path, body) => {
    const sent = request(`${server}${path}`, {
      method: body ? 'POST' : 'GET',
      ca: Buffer.from(authority, 'base64'),
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

async function checkProvisioning(image, sample) {
  const kubeconfig = join(folder, 'kubeconfig');
  const socket = join(folder, 'csi.sock');
  const api = start(sample, ['sandbox-api', `--kubeconfig-out=${kubeconfig}`]);
  const data = `--data-dir=${join(folder, 'volumes')}`;
  const driver = start(sample, ['sandbox-driver', `--csi-address=${socket}`, data]);
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
  const sutler = start(image, [`--csi-address=${socket}`, `--kubeconfig=${kubeconfig}`]);
  const isBound = async () => (await call(`${claims}/first`)).status?.phase === 'Bound';
  await until(isBound, 'image --csi-address=… : a Bound claim', sutler);
  print('image --csi-address=…: the claim is Bound');
  sutler.kill('SIGTERM');
  if ((await sutler.ended) !== 0) fail(`sutler did not stop on SIGTERM:\n${sutler.output}`);
  for (const child of [api, driver]) child.kill('SIGTERM');
  await Promise.all([api.ended, driver.ended]);
}

function writeSbom(file) {
  const args = ['sbom', '--sbom-format=cyclonedx', '--omit=dev'];
  const { status, stdout } = spawnSync('npm', args, {
    cwd: pathIn(stages.get('build'), '.'),
    stdio: ['ignore', 'pipe', 2],
    maxBuffer: 1e8,
  });
  if (status !== 0) fail(`npm ${args.join(' ')} failed: see its output above`);
  writeFileSync(file, stdout);
  print(`${file}: ${JSON.parse(stdout).components.length} npm packages`);
}

findRedis();
const image = buildStages();
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
await expectOutput(image, ['--version'], new RegExp(version.replaceAll('.', '\\.')));
await expectOutput(image, ['--help'], /Usage: sutler/);
await checkMigrate(image);
await checkProvisioning(image, stages.get('sample-driver'));
if (values.sbom !== undefined) writeSbom(values.sbom);
print('The image builds and runs.');
