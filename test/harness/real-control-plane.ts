import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { existsSync, rmSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { stringify } from 'yaml';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { Connection } from '../conformance/connection.ts';
import { freePort } from './free-port.ts';
import { startProgram, type Program } from './program.ts';

/** A Kubernetes control plane made of the real programs. */
export interface RealControlPlane {
  readonly url: string;
  /** PEM texts; absent where the kubeconfig has none. */
  readonly tls: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  readonly token?: string;
  /** Kubeconfig of a cluster administrator. */
  readonly kubeconfig: string;
  /** Absent for the cluster of KUBECONFIG. */
  readonly apiServerPid?: number | undefined;
  /** Whether kube-controller-manager runs, so that claims become Bound. */
  readonly hasBinder: boolean;
  readonly hasScheduler: boolean;
  /** With the rights of the administrator. */
  readonly api: Connection;
  /** File with an audit event of each request, one a line, if they were asked for. Absent for the
   * cluster of KUBECONFIG. */
  readonly auditLog?: string | undefined;
  /** Copies etcd's data. Absent for the cluster of KUBECONFIG.
   * @returns what stops etcd and kube-apiserver and starts them with that copy */
  backUp?(): Promise<() => Promise<void>>;
  /** Stops the programs in reverse order and removes their folder; in the cluster of KUBECONFIG it
   * deletes what `api` created. */
  close(): Promise<void>;
}

/** The error message when no control plane is configured. */
const HOW_TO_RUN =
  'no control plane: set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd ' +
  '(kube-controller-manager and kube-scheduler there, or named by KUBE_CONTROLLER_MANAGER and ' +
  'KUBE_SCHEDULER), or KUBECONFIG to a test cluster';

const READY_WITHIN_MS = 90_000;
const KILL_AFTER_MS = 20_000;
/** The controllers of the objects that the tests use. Others would only use CPU. */
const CONTROLLERS = [
  'persistentvolume-binder-controller',
  'persistentvolumeclaim-protection-controller',
  'persistentvolume-protection-controller',
  'namespace-controller',
  'serviceaccount-controller',
  'garbage-collector-controller',
];

/** What a test requires of a control plane. */
export interface ControlPlaneNeeds {
  /** true: claims have to become Bound, which requires kube-controller-manager. false: it is not
   * started, nor is kube-scheduler. Absent: both run where their programs exist. */
  readonly binder?: boolean;
  /** Whether kube-controller-manager has its default limit, as in a cluster: 20 requests a second,
   * of which a claim takes four or five. Absent: 500, so that tests are fast. */
  readonly hasDefaultLimit?: boolean;
  /** Feature gates to enable in kube-apiserver; in the cluster of KUBECONFIG they must be on. */
  readonly serverGates?: readonly string[];
  /** The group whose requests kube-apiserver writes to RealControlPlane.auditLog. */
  readonly auditedGroup?: string;
  /** How long kube-apiserver keeps events; absent: an hour. */
  readonly eventTtl?: string | undefined;
}

/** Finds a control plane. With KUBEBUILDER_ASSETS, the returned function starts etcd,
 * kube-apiserver and, where they exist, kube-controller-manager and kube-scheduler on loopback.
 * Otherwise it opens the cluster of KUBECONFIG: last, so that a developer's own cluster is not
 * used by accident.
 * @throws Error HOW_TO_RUN, before anything starts, if neither is set or a program is missing */
export function realControlPlane(
  env: NodeJS.ProcessEnv,
  needs: ControlPlaneNeeds = {},
): () => Promise<RealControlPlane> {
  const assets = env['KUBEBUILDER_ASSETS'];
  if (assets !== undefined && assets !== '') {
    const { controllerManager, scheduler, ...required } = findPrograms(assets, env);
    if (needs.binder === true && controllerManager === undefined)
      throw new Error(`there is no kube-controller-manager: ${HOW_TO_RUN}`);
    const programs = {
      ...required,
      ...(needs.binder === false ? {} : { controllerManager, scheduler }),
    };
    const { serverGates = [], auditedGroup, eventTtl = '1h', hasDefaultLimit = false } = needs;
    const plan = { ...programs, serverGates, auditedGroup, eventTtl, hasDefaultLimit };
    return () => startWithFreePorts(plan);
  }
  const kubeconfig = env['KUBECONFIG'];
  if (kubeconfig !== undefined && kubeconfig !== '') return () => openCluster(kubeconfig);
  throw new Error(HOW_TO_RUN);
}

interface Programs {
  readonly etcd: string;
  readonly apiServer: string;
  readonly controllerManager?: string | undefined;
  readonly scheduler?: string | undefined;
}

interface Plan extends Programs {
  readonly serverGates: readonly string[];
  readonly auditedGroup?: string | undefined;
  readonly eventTtl: string;
  readonly hasDefaultLimit: boolean;
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
  return {
    etcd: required('etcd'),
    apiServer: required('kube-apiserver'),
    controllerManager: optional('kube-controller-manager', 'KUBE_CONTROLLER_MANAGER'),
    scheduler: optional('kube-scheduler', 'KUBE_SCHEDULER'),
  };
}

/** Starts the programs, and again with other ports if another process took a port meanwhile. */
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
  const children: Program[] = [];
  // A test runner sends SIGTERM at its time limit. startProgram kills the children at exit.
  const end = (): never => {
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
    return process.exit(1);
  };
  process.once('SIGTERM', end).once('SIGINT', end);
  let api: Connection | undefined;
  const close = async (): Promise<void> => {
    await api?.end();
    for (const child of children.toReversed()) await child.stop(KILL_AFTER_MS);
    process.off('SIGTERM', end).off('SIGINT', end);
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const etcd = await startEtcd(programs.etcd, { folder, children });
    const { serverGates: gates, auditedGroup, eventTtl } = programs;
    const server = await startApiServer(programs.apiServer, {
      folder,
      children,
      gates,
      auditedGroup,
      eventTtl,
      etcdUrl: etcd.url,
    });
    const { hasDefaultLimit } = programs;
    const others = { children, kubeconfig: server.kubeconfig };
    // Both settle before a failure is reported, so that close() stops both.
    const started = await Promise.allSettled([
      programs.controllerManager === undefined
        ? undefined
        : startControllerManager(programs.controllerManager, { ...others, hasDefaultLimit }),
      programs.scheduler === undefined
        ? undefined
        : startClient('kube-scheduler', programs.scheduler, { ...others, args: [] }),
    ]);
    for (const result of started) if (result.status === 'rejected') throw result.reason;
    api = new Connection(server);
    return {
      ...server,
      api,
      backUp: () => backUp(join(folder, 'etcd'), etcd, server),
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
  readonly children: Program[];
}

/** A program that can be started again, with the same arguments. */
interface Restartable {
  /** Starts it; resolves when it is ready. */
  start(): Promise<void>;
  stop(): Promise<void>;
  readonly pid: number | undefined;
}

async function restartable(
  name: string,
  children: Program[],
  { launch, isReady }: { launch: () => Program; isReady: () => Promise<boolean> },
): Promise<Restartable> {
  let child: Program | undefined;
  const started: Restartable = {
    async start() {
      child = launch();
      children.push(child);
      await waitUntilReady(name, child, isReady);
    },
    stop: async () => child?.stop(KILL_AFTER_MS),
    get pid() {
      return child?.pid;
    },
  };
  await started.start();
  return started;
}

async function backUp(
  data: string,
  etcd: { readonly program: Restartable },
  server: { readonly program: Restartable },
): Promise<() => Promise<void>> {
  const copy = `${data}-backup`;
  const { pid } = etcd.program;
  if (pid === undefined) throw new Error('etcd does not run');
  // What a process that stands still has written is what a crash would leave.
  process.kill(pid, 'SIGSTOP');
  await cp(data, copy, { recursive: true });
  process.kill(pid, 'SIGCONT');
  return async () => {
    await server.program.stop();
    await etcd.program.stop();
    await rm(data, { recursive: true });
    await cp(copy, data, { recursive: true });
    await etcd.program.start();
    await server.program.start();
  };
}

async function startEtcd(program: string, { folder, children }: Context) {
  const [clientPort, peerPort] = await Promise.all([freePort(), freePort()]);
  const url = `http://127.0.0.1:${clientPort}`;
  const args = [
    `--data-dir=${join(folder, 'etcd')}`,
    `--listen-client-urls=${url}`,
    `--advertise-client-urls=${url}`,
    `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
    `--initial-advertise-peer-urls=http://127.0.0.1:${peerPort}`,
    `--initial-cluster=default=http://127.0.0.1:${peerPort}`,
    // Faster; the data need not survive a power failure.
    '--unsafe-no-fsync',
  ];
  const etcd = await restartable('etcd', children, {
    launch: () => startChild(program, args),
    isReady: () => answersOk(`${url}/health`),
  });
  return { url, program: etcd };
}

interface ApiServerContext extends Context {
  readonly gates: readonly string[];
  readonly auditedGroup: string | undefined;
  readonly eventTtl: string;
  readonly etcdUrl: string;
}

async function startApiServer(
  program: string,
  { folder, children, gates, auditedGroup, eventTtl, etcdUrl }: ApiServerContext,
) {
  const port = await freePort();
  const file = (name: string): string => join(folder, name);
  const token = randomBytes(24).toString('hex');
  await writeFile(file('tokens.csv'), `${token},admin,admin,"system:masters"\n`, { mode: 0o600 });
  const pair = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  await writeFile(file('accounts.key'), pair.privateKey, { mode: 0o600 });
  await writeFile(file('accounts.pub'), pair.publicKey);
  const auditLog = auditedGroup === undefined ? undefined : file('audit.log');
  await writeFile(file('audit-policy.yaml'), stringify(policyFor(auditedGroup ?? '')));
  const args = [
    `--etcd-servers=${etcdUrl}`,
    '--bind-address=127.0.0.1',
    '--advertise-address=127.0.0.1',
    // The default would fail: it writes endpoints of the Service `kubernetes`, which may not be on
    // loopback.
    '--endpoint-reconciler-type=none',
    `--secure-port=${port}`,
    // Here it writes a certificate of its own, with that of the authority.
    `--cert-dir=${folder}`,
    `--token-auth-file=${file('tokens.csv')}`,
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-account-key-file=${file('accounts.pub')}`,
    `--service-account-signing-key-file=${file('accounts.key')}`,
    '--service-cluster-ip-range=10.96.0.0/16',
    '--authorization-mode=RBAC',
    '--allow-privileged=true',
    // With the default, 5 minutes, no test would see a resourceVersion expire.
    '--etcd-compaction-interval=10s',
    '--profiling=false',
    `--event-ttl=${eventTtl}`,
    ...(gates.length === 0
      ? []
      : [`--feature-gates=${gates.map((gate) => `${gate}=true`).join(',')}`]),
    ...(auditLog === undefined
      ? []
      : [`--audit-policy-file=${file('audit-policy.yaml')}`, `--audit-log-path=${auditLog}`]),
  ];
  const url = `https://127.0.0.1:${port}`;
  const server = await restartable('kube-apiserver', children, {
    launch: () => startChild(program, args),
    // /readyz waits for the start hooks, RBAC's built-in roles among them.
    isReady: async () =>
      (await answersOk(`${url}/readyz`, token)) &&
      (await answersOk(`${url}/api/v1/namespaces/default`, token)),
  });
  const caFile = file('apiserver.crt');
  const kubeconfig = file('admin.kubeconfig');
  await writeFile(kubeconfig, stringify(kubeconfigOf({ url, caFile, token })), { mode: 0o600 });
  const tls = { ca: await readFile(caFile, 'utf8') };
  return { url, tls, token, kubeconfig, auditLog, program: server, apiServerPid: server.pid };
}

function policyFor(group: string): object {
  return {
    apiVersion: 'audit.k8s.io/v1',
    kind: 'Policy',
    omitStages: ['RequestReceived'],
    rules: [{ level: 'Metadata', userGroups: [group] }, { level: 'None' }],
  };
}

interface ClientContext extends Pick<Context, 'children'> {
  readonly kubeconfig: string;
}

function startControllerManager(
  program: string,
  { hasDefaultLimit, ...context }: ClientContext & { readonly hasDefaultLimit: boolean },
): Promise<void> {
  const args = [
    `--controllers=${CONTROLLERS.join(',')}`,
    // Each controller runs as its own service account, with RBAC's built-in role for it.
    '--use-service-account-credentials',
    '--pvclaimbinder-sync-period=15s',
    ...(hasDefaultLimit ? [] : ['--kube-api-qps=500', '--kube-api-burst=1000']),
  ];
  return startClient('kube-controller-manager', program, { ...context, args });
}

async function startClient(
  name: string,
  program: string,
  { children, kubeconfig, args }: ClientContext & { readonly args: readonly string[] },
): Promise<void> {
  const port = await freePort();
  const child = startChild(program, [
    `--kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
    '--authentication-tolerate-lookup-failure=true',
    '--leader-elect=false',
    '--bind-address=127.0.0.1',
    `--secure-port=${port}`,
    '--profiling=false',
    ...args,
  ]);
  children.push(child);
  await waitUntilReady(name, child, () => answersOk(`https://127.0.0.1:${port}/healthz`));
}

function startChild(program: string, args: readonly string[]): Program {
  return startProgram(program, args, { keptOutput: 8_000 });
}

/** A child exited before it was ready. */
class ChildExited extends Error {
  override readonly name = 'ChildExited';
  readonly output: string;
  constructor(name: string, output: string) {
    super(`${name} exited before it was ready; its last output:\n${output}`);
    this.output = output;
  }
}

/** Waits until `isReady` returns true.
 * @throws ChildExited if the program exits before that, Error if it takes too long */
async function waitUntilReady(
  name: string,
  child: Program,
  isReady: () => Promise<boolean>,
): Promise<void> {
  const deadlineMs = Date.now() + READY_WITHIN_MS;
  while (!(await isReady())) {
    if (child.hasEnded) throw new ChildExited(name, child.output());
    if (Date.now() > deadlineMs)
      throw new Error(`${name} is not ready after ${READY_WITHIN_MS} ms:\n${child.output()}`);
    await delay(100);
  }
}

/** Whether a server on loopback answers with 200. */
async function answersOk(url: string, token?: string): Promise<boolean> {
  const agent = new Agent({ connect: { rejectUnauthorized: false } });
  try {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const { statusCode, body } = await request(url, { dispatcher: agent, headers });
    await body.dump();
    return statusCode === 200;
  } catch {
    return false;
  } finally {
    await agent.close();
  }
}

function kubeconfigOf(o: {
  readonly url: string;
  readonly caFile: string;
  readonly token: string;
}) {
  return {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'real', cluster: { server: o.url, 'certificate-authority': o.caFile } }],
    users: [{ name: 'user', user: { token: o.token } }],
    contexts: [{ name: 'real', context: { cluster: 'real', user: 'user' } }],
    'current-context': 'real',
  };
}

/** Opens an existing cluster, whose user has a client certificate or a token. */
async function openCluster(kubeconfig: string): Promise<RealControlPlane> {
  const { server, credentials } = await loadClusterAccess({ kubeconfig, master: '', env: {} });
  const { tls, headers } = await credentials();
  const { ca, cert, key } = tls;
  const token = /Bearer (.*)/.exec(String(headers['Authorization']))?.[1];
  if (token === undefined && cert === undefined)
    throw new Error(
      `${kubeconfig}: its user has neither a token nor a client certificate; create one for the ` +
        'tests',
    );
  const pems = Object.entries({ ca, cert, key }).filter(([, pem]) => pem !== undefined);
  const url = server.href.replace(/\/$/, '');
  const own = { url, tls: Object.fromEntries(pems), ...(token === undefined ? {} : { token }) };
  const api = new Connection(own);
  return {
    ...own,
    api,
    kubeconfig,
    hasBinder: true,
    hasScheduler: true,
    close: () => api.close(),
  };
}
