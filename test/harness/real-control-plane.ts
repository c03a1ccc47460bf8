import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, rmSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { dump, load } from 'js-yaml';
import { Agent, request } from 'undici';
import { createAuthority, readCertificate, writeServiceAccountKeys } from './real-certificates.ts';
import type { Authority } from './real-certificates.ts';

/** A Kubernetes control plane made of the real programs. */
export interface RealControlPlane {
  readonly url: string;
  /** PEM texts; absent where the kubeconfig has none. */
  readonly tls: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  readonly token?: string;
  /** Kubeconfig of a cluster administrator. */
  readonly kubeconfig: string;
  /** Whether kube-controller-manager runs, so that claims become Bound. */
  readonly hasBinder: boolean;
  readonly hasScheduler: boolean;
  /** Ends what was started, last first, and removes the temp folder; nothing to do for a cluster
   * that was given. */
  close(): Promise<void>;
}

/** One line that says what to set; the tests on a real control plane fail with it when nothing is
 * set. */
const HOW_TO_RUN =
  'test:real needs a control plane: set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd ' +
  '(kube-controller-manager and kube-scheduler there, or named by KUBE_CONTROLLER_MANAGER and KUBE_SCHEDULER), or KUBECONFIG to a test cluster';

const READY_WITHIN_MS = 90_000;
const KILL_AFTER_MS = 20_000;
/** What the objects we touch need. The others would only eat CPU: there are no nodes and no pods to
 * look after. */
const CONTROLLERS = [
  'persistentvolume-binder-controller',
  'persistentvolumeclaim-protection-controller',
  'persistentvolume-protection-controller',
  'namespace-controller',
  'serviceaccount-controller',
  'garbage-collector-controller',
];

/** What a test needs of a control plane. */
export interface ControlPlaneNeeds {
  /** Claims have to become Bound, which takes a kube-controller-manager. */
  readonly binder?: boolean;
  /** Feature gates of kube-apiserver to switch on; a cluster that was given has to have them on. */
  readonly serverGates?: readonly string[];
}

/** How to get a control plane: by starting etcd, kube-apiserver and, where they exist,
 * kube-controller-manager and kube-scheduler from KUBEBUILDER_ASSETS on loopback; or by opening the
 * cluster of KUBECONFIG. The programs win over the kubeconfig, so that a developer's own cluster is
 * never used by surprise.
 * @throws       Error HOW_TO_RUN, at once, when neither is set or a program is missing: no test has
 *               to wait for it */
export function realControlPlane(
  env: NodeJS.ProcessEnv,
  needs: ControlPlaneNeeds = {},
): () => Promise<RealControlPlane> {
  const assets = env['KUBEBUILDER_ASSETS'];
  if (assets !== undefined && assets !== '') {
    const programs = findPrograms(assets, env);
    if (needs.binder === true && programs.controllerManager === undefined)
      throw new Error(`there is no kube-controller-manager: ${HOW_TO_RUN}`);
    return () => startWithFreePorts({ ...programs, serverGates: needs.serverGates ?? [] });
  }
  const kubeconfig = env['KUBECONFIG'];
  if (kubeconfig !== undefined && kubeconfig !== '') return () => openCluster(kubeconfig);
  throw new Error(HOW_TO_RUN);
}

interface Programs {
  readonly etcd: string;
  readonly apiServer: string;
  readonly controllerManager?: string;
  readonly scheduler?: string;
}

interface Plan extends Programs {
  readonly serverGates: readonly string[];
}

function findPrograms(folder: string, env: NodeJS.ProcessEnv): Programs {
  const required = (name: string): string => {
    const path = resolve(folder, name);
    if (!existsSync(path)) throw new Error(`${path} does not exist: ${HOW_TO_RUN}`);
    return path;
  };
  const optional = (name: string, variable: string): string | undefined => {
    const named = env[variable];
    if (named !== undefined && named !== '') return named;
    const path = resolve(folder, name);
    return existsSync(path) ? path : undefined;
  };
  const controllerManager = optional('kube-controller-manager', 'KUBE_CONTROLLER_MANAGER');
  const scheduler = optional('kube-scheduler', 'KUBE_SCHEDULER');
  return {
    etcd: required('etcd'),
    apiServer: required('kube-apiserver'),
    ...(controllerManager === undefined ? {} : { controllerManager }),
    ...(scheduler === undefined ? {} : { scheduler }),
  };
}

/** A port that was free a moment ago may be taken by the time a child binds it; then all begins
 * again with other ports. */
async function startWithFreePorts(programs: Plan): Promise<RealControlPlane> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start(programs);
    } catch (error) {
      if (
        attempt === 3 ||
        !(error instanceof ChildExited) ||
        !error.output.includes('address already in use')
      )
        throw error;
    }
  }
}

async function start(programs: Plan): Promise<RealControlPlane> {
  const folder = await mkdtemp(join(tmpdir(), 'sutler-control-plane-'));
  const children: Child[] = [];
  // A runner that is out of patience sends SIGTERM. The exit kills the children, see Child.
  const end = (): never => {
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
    return process.exit(1);
  };
  process.once('SIGTERM', end).once('SIGINT', end);
  const close = async (): Promise<void> => {
    for (const child of children.toReversed()) await child.stop();
    process.off('SIGTERM', end).off('SIGINT', end);
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const authority = await createAuthority(folder);
    const etcd = await startEtcd(programs.etcd, { folder, authority, children });
    const gates = programs.serverGates;
    const server = await startApiServer(programs.apiServer, {
      folder,
      authority,
      children,
      gates,
      etcdUrl: etcd.url,
      etcdClient: etcd.client,
    });
    const others = { folder, authority, children, url: server.url };
    // Each waits for its own condition; together they take as long as the slowest.
    await Promise.all([
      programs.controllerManager === undefined
        ? undefined
        : startControllerManager(programs.controllerManager, others),
      programs.scheduler === undefined ? undefined : startScheduler(programs.scheduler, others),
    ]);
    return {
      ...server,
      hasBinder: programs.controllerManager !== undefined,
      hasScheduler: programs.scheduler !== undefined,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

interface Context {
  readonly folder: string;
  readonly authority: Authority;
  readonly children: Child[];
}

async function startEtcd(program: string, { folder, authority, children }: Context) {
  const [clientPort, peerPort] = await Promise.all([freePort(), freePort()]);
  const [server, client] = await Promise.all([
    authority.server('etcd'),
    authority.client('etcd-client', { commonName: 'kube-apiserver' }),
  ]);
  const url = `https://127.0.0.1:${clientPort}`;
  const child = new Child('etcd', program, [
    `--data-dir=${join(folder, 'etcd')}`,
    `--listen-client-urls=${url}`,
    `--advertise-client-urls=${url}`,
    `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
    `--initial-advertise-peer-urls=http://127.0.0.1:${peerPort}`,
    `--initial-cluster=default=http://127.0.0.1:${peerPort}`,
    `--cert-file=${server.certFile}`,
    `--key-file=${server.keyFile}`,
    `--trusted-ca-file=${authority.caFile}`,
    '--client-cert-auth',
    // Nothing here has to survive a power cut.
    '--unsafe-no-fsync',
  ]);
  children.push(child);
  // Only our child has a certificate of this authority, so an answer proves that it is ours.
  const agent = new Agent({
    connect: { ca: await readFile(authority.caFile, 'utf8'), ...(await readCertificate(client)) },
  });
  await child.until(async () => (await status(agent, `${url}/health`)) === 200);
  await agent.close();
  return { url, client };
}

interface ApiServerContext extends Context {
  readonly gates: readonly string[];
  readonly etcdUrl: string;
  readonly etcdClient: { readonly certFile: string; readonly keyFile: string };
}

async function startApiServer(
  program: string,
  { folder, authority, children, gates, etcdUrl, etcdClient }: ApiServerContext,
) {
  const port = await freePort();
  const [serving, admin, keys] = await Promise.all([
    authority.server('kube-apiserver'),
    authority.client('admin', { commonName: 'sutler-test-admin', organization: 'system:masters' }),
    writeServiceAccountKeys(folder),
  ]);
  const token = randomBytes(24).toString('hex');
  const tokenFile = join(folder, 'tokens.csv');
  await writeFile(tokenFile, `${token},sutler-test-admin,sutler-test-admin,"system:masters"\n`, {
    mode: 0o600,
  });
  const child = new Child('kube-apiserver', program, [
    `--etcd-servers=${etcdUrl}`,
    `--etcd-cafile=${authority.caFile}`,
    `--etcd-certfile=${etcdClient.certFile}`,
    `--etcd-keyfile=${etcdClient.keyFile}`,
    '--bind-address=127.0.0.1',
    '--advertise-address=127.0.0.1',
    // The default writes the endpoints of the Service `kubernetes`, which may not be on loopback.
    '--endpoint-reconciler-type=none',
    `--secure-port=${port}`,
    `--cert-dir=${join(folder, 'apiserver')}`,
    `--tls-cert-file=${serving.certFile}`,
    `--tls-private-key-file=${serving.keyFile}`,
    `--client-ca-file=${authority.caFile}`,
    `--token-auth-file=${tokenFile}`,
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-account-key-file=${keys.publicFile}`,
    `--service-account-signing-key-file=${keys.privateFile}`,
    '--service-cluster-ip-range=10.96.0.0/16',
    '--authorization-mode=RBAC',
    '--allow-privileged=true',
    // The default is 5 minutes, too long for a test to see a resourceVersion expire.
    '--etcd-compaction-interval=10s',
    '--profiling=false',
    ...(gates.length === 0
      ? []
      : [`--feature-gates=${gates.map((gate) => `${gate}=true`).join(',')}`]),
  ]);
  children.push(child);
  const url = `https://127.0.0.1:${port}`;
  const tls = { ca: await readFile(authority.caFile, 'utf8'), ...(await readCertificate(admin)) };
  const agent = new Agent({ connect: tls });
  // /readyz waits for the start hooks, RBAC's built-in roles among them.
  await child.until(async () => (await status(agent, `${url}/readyz`)) === 200);
  await child.until(async () => (await status(agent, `${url}/api/v1/namespaces/default`)) === 200);
  await agent.close();
  const kubeconfig = join(folder, 'admin.kubeconfig');
  await writeKubeconfig(kubeconfig, { url, caFile: authority.caFile, ...admin });
  return { url, tls, token, kubeconfig };
}

interface ClientContext extends Context {
  readonly url: string;
}

async function startControllerManager(program: string, context: ClientContext): Promise<void> {
  const args = [
    `--controllers=${CONTROLLERS.join(',')}`,
    // Each controller as its own service account, with the rights that RBAC's built-in roles give
    // it.
    '--use-service-account-credentials',
    '--pvclaimbinder-sync-period=15s',
    // Its own defaults (20, 30) would be what the tests measure.
    '--kube-api-qps=500',
    '--kube-api-burst=1000',
  ];
  await startClient('kube-controller-manager', program, { ...context, args });
}

async function startScheduler(program: string, context: ClientContext): Promise<void> {
  await startClient('kube-scheduler', program, { ...context, args: [] });
}

async function startClient(
  name: string,
  program: string,
  context: ClientContext & { readonly args: readonly string[] },
): Promise<void> {
  const { folder, authority, children, url, args } = context;
  const port = await freePort();
  const [identity, serving] = await Promise.all([
    authority.client(name, { commonName: `system:${name}` }),
    authority.server(`${name}-serving`),
  ]);
  const kubeconfig = join(folder, `${name}.kubeconfig`);
  await writeKubeconfig(kubeconfig, { url, caFile: authority.caFile, ...identity });
  const child = new Child(name, program, [
    `--kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
    '--authentication-tolerate-lookup-failure=true',
    '--leader-elect=false',
    '--bind-address=127.0.0.1',
    `--secure-port=${port}`,
    `--tls-cert-file=${serving.certFile}`,
    `--tls-private-key-file=${serving.keyFile}`,
    '--profiling=false',
    ...args,
  ]);
  children.push(child);
  const agent = new Agent({ connect: { ca: await readFile(authority.caFile, 'utf8') } });
  await child.until(async () => (await status(agent, `https://127.0.0.1:${port}/healthz`)) === 200);
  await agent.close();
}

/** A child exited before it was ready. */
class ChildExited extends Error {
  override readonly name = 'ChildExited';
  readonly output: string;
  constructor(name: string, output: string) {
    super(`${name} exited before it was ready; its last words:\n${output}`);
    this.output = output;
  }
}

/** One child process: the tail of its output is kept, it is stopped by its own handle, and it does
 * not outlive this process. */
class Child {
  readonly #name: string;
  readonly #process: ChildProcess;
  #output = '';
  readonly #exited: Promise<void>;
  #hasExited = false;
  readonly #killNow = (): void => {
    this.#process.kill('SIGKILL');
  };

  constructor(name: string, program: string, args: readonly string[]) {
    this.#name = name;
    this.#process = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const keep = (chunk: Buffer): void => {
      this.#output = (this.#output + chunk.toString()).slice(-8_000);
    };
    this.#process.stdout?.on('data', keep);
    this.#process.stderr?.on('data', keep);
    process.once('exit', this.#killNow);
    this.#exited = new Promise((done) => {
      const ended = (): void => {
        this.#hasExited = true;
        process.removeListener('exit', this.#killNow);
        done();
      };
      this.#process.once('error', (error) => {
        this.#output += error.message;
        ended();
      });
      this.#process.once('exit', ended);
    });
  }

  /** Waits until `isReady` says so; a child that exits, or takes too long, ends the wait with its
   * last words. */
  async until(isReady: () => Promise<boolean>): Promise<void> {
    const deadline = Date.now() + READY_WITHIN_MS;
    while (!(await isReady())) {
      if (this.#hasExited) throw new ChildExited(this.#name, this.#output);
      if (Date.now() > deadline)
        throw new Error(
          `${this.#name} is not ready after ${READY_WITHIN_MS} ms; its last words:\n${this.#output}`,
        );
      await delay(100);
    }
  }

  async stop(): Promise<void> {
    if (this.#hasExited) return;
    this.#process.kill('SIGTERM');
    const timer = setTimeout(this.#killNow, KILL_AFTER_MS);
    await this.#exited;
    clearTimeout(timer);
  }
}

/** HTTP status, or undefined while nothing (or somebody else's certificate) answers. */
async function status(agent: Agent, url: string): Promise<number | undefined> {
  try {
    const reply = await request(url, { dispatcher: agent });
    await reply.body.dump();
    return reply.statusCode;
  } catch {
    return undefined;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done, fail) => {
    server.once('error', fail);
    server.listen(0, '127.0.0.1', done);
  });
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

interface KubeconfigInput {
  readonly url: string;
  readonly caFile: string;
  readonly certFile: string;
  readonly keyFile: string;
}

async function writeKubeconfig(
  path: string,
  { url, caFile, certFile, keyFile }: KubeconfigInput,
): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'real', cluster: { server: url, 'certificate-authority': caFile } }],
    users: [{ name: 'user', user: { 'client-certificate': certFile, 'client-key': keyFile } }],
    contexts: [{ name: 'real', context: { cluster: 'real', user: 'user' } }],
    'current-context': 'real',
  };
  await writeFile(path, dump(config), { mode: 0o600 });
}

interface Named {
  readonly name: string;
}
interface KubeconfigFile {
  readonly 'current-context'?: string;
  readonly clusters?: readonly (Named & { readonly cluster: Readonly<Record<string, string>> })[];
  readonly users?: readonly (Named & { readonly user: Readonly<Record<string, string>> })[];
  readonly contexts?: readonly (Named & { readonly context: Readonly<Record<string, string>> })[];
}

/** The cluster and the user of a kubeconfig's current context. */
async function readCurrentContext(kubeconfig: string) {
  const config = load(await readFile(kubeconfig, 'utf8')) as KubeconfigFile;
  const context =
    config.contexts?.find(({ name }) => name === config['current-context'])?.context ?? {};
  const cluster = config.clusters?.find(({ name }) => name === context['cluster'])?.cluster ?? {};
  const user = config.users?.find(({ name }) => name === context['user'])?.user ?? {};
  const url = cluster['server'];
  if (url === undefined)
    throw new Error(`${kubeconfig}: its current-context names no cluster with a server`);
  return { cluster, user, userName: context['user'] ?? '(none)', url };
}

/** A cluster that exists already. Only client certificates and tokens are supported, no credential
 * plug-ins. */
async function openCluster(kubeconfig: string): Promise<RealControlPlane> {
  const { cluster, user, userName, url } = await readCurrentContext(kubeconfig);
  const read = async (
    from: Readonly<Record<string, string>>,
    key: string,
  ): Promise<string | undefined> => {
    const data = from[`${key}-data`];
    if (data !== undefined) return Buffer.from(data, 'base64').toString('utf8');
    const file = from[key];
    if (file === undefined) return undefined;
    return readFile(isAbsolute(file) ? file : resolve(dirname(kubeconfig), file), 'utf8');
  };
  const [ca, cert, key, tokenFromFile] = await Promise.all([
    read(cluster, 'certificate-authority'),
    read(user, 'client-certificate'),
    read(user, 'client-key'),
    read(user, 'tokenFile'),
  ]);
  const token = user['token'] ?? tokenFromFile?.trim();
  if (token === undefined && cert === undefined) {
    throw new Error(
      `${kubeconfig}: user ${userName} has neither a token nor a client certificate; ` +
        'create one for the tests',
    );
  }
  return {
    url: url.replace(/\/$/, ''),
    tls: {
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    },
    ...(token === undefined ? {} : { token }),
    kubeconfig,
    hasBinder: true,
    hasScheduler: true,
    close: async () => {},
  };
}
