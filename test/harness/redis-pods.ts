import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Closers } from '#src/runtime/closers.ts';
import { K8S, readYaml } from './real-manifests.ts';
import { sleep } from './queue.ts';

const run = promisify(execFile);

interface Probe {
  readonly exec: { readonly command: readonly string[] };
}
interface Container {
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly name: 'redis' | 'sentinel';
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
}

const FOLDER = 'redis-sentinel';
const [STATEFUL_SET] = readYaml(`${FOLDER}/redis.yaml`) as readonly [
  { readonly spec: { readonly template: { readonly spec: { containers: readonly Container[] } } } },
];
const CONTAINERS = STATEFUL_SET.spec.template.spec.containers;
const RESTART_MS = 300;

/** A user of the tests, at Redis and at Sentinels. */
export const TESTER = { user: 'tester', password: 'password-of-the-tester' };
const ADMIN = `user ${TESTER.user} on >${TESTER.password} ~* &* +@all\n`;

/** Why pods can't be run as processes, if they can't: each sees a file of its own as /etc/hosts. */
export const NO_PODS =
  spawnSync('unshare', ['-rm', 'true']).status !== 0 && 'needs unshare, for names of hosts';

/** The names of the pods of k8s/redis-sentinel. */
export const POD_NAMES =
  CONTAINERS[0]?.env.find(({ name }) => name === 'PODS')?.value?.split(' ') ?? [];

/** A pod of k8s/redis-sentinel: two processes on an address of loopback. */
export interface RedisPod {
  readonly name: string;
  /** Starts what does not run; what ends is started again, as the kubelet does. */
  start(): void;
  /** Kills what runs at once. It is started again after a moment, unless `o.stays`. */
  kill(o?: { readonly stays: boolean }): Promise<void>;
  /** @param container  absent: both */
  signal(signal: 'SIGSTOP' | 'SIGCONT', container?: Container['name']): void;
  /** Removes its volumes, as the end of a pod does. */
  wipe(): Promise<void>;
  /** Has the pod another address, from its next start. */
  moveTo(address: string): Promise<void>;
  /** What a command prints in a container. */
  exec(command: readonly string[]): Promise<string>;
  /** Whether the probe of a container succeeds. */
  probe(kind: 'livenessProbe' | 'readinessProbe', container: Container['name']): Promise<boolean>;
}

/** Makes pods of the manifest, its script and its settings.
 * @param o.secrets  what the Job made, by the name of the Secret */
export async function makeRedisPods(o: {
  readonly folder: string;
  readonly secrets: ReadonlyMap<string, Readonly<Record<string, string>>>;
  readonly closers: Closers;
}): Promise<{ readonly pods: readonly RedisPod[]; readonly hosts: string }> {
  const hosts = join(o.folder, 'hosts');
  const addresses = new Map(POD_NAMES.map((name, i) => [name, `127.0.0.${i + 2}`]));
  const writeHosts = (): Promise<void> =>
    writeFile(hosts, [...addresses].map(([name, ip]) => `${ip} ${name}\n`).join(''));
  await writeHosts();
  const pods = await Promise.all(
    POD_NAMES.map(async (name) => {
      const pod = new Pod(name, { ...o, folder: join(o.folder, name), hosts });
      const moveTo = async (address: string): Promise<void> => {
        addresses.set(name, address);
        await writeHosts();
        await pod.prepare(address);
      };
      await moveTo(addresses.get(name) ?? '');
      o.closers.add(name, () => pod.kill({ stays: true }));
      return Object.assign(pod, { moveTo });
    }),
  );
  return { pods, hosts };
}

class Pod {
  readonly name: string;
  readonly #folder: string;
  readonly #hosts: string;
  readonly #secrets: ReadonlyMap<string, Readonly<Record<string, string>>>;
  readonly #running = new Map<string, ChildProcess>();
  #isMeantToRun = false;

  constructor(
    name: string,
    o: Omit<Parameters<typeof makeRedisPods>[0], 'closers'> & { readonly hosts: string },
  ) {
    this.name = name;
    this.#folder = o.folder;
    this.#hosts = o.hosts;
    this.#secrets = o.secrets;
    process.once('exit', () => {
      for (const { pid } of this.#running.values()) process.kill(-(pid ?? 0), 'SIGKILL');
    });
  }

  /** Writes what is mounted, for this address. */
  async prepare(address: string): Promise<void> {
    const files: Record<string, Readonly<Record<string, string>>> = {
      settings: Object.fromEntries(
        ['pod.sh', 'redis.conf', 'sentinel.conf', 'redis-users.acl', 'sentinel-users.acl'].map(
          (file) => [file, readFileSync(join(K8S, FOLDER, file), 'utf8')],
        ),
      ),
      users: { 'users.acl': readFileSync(join(K8S, 'redis/users.acl'), 'utf8') },
      secrets: this.#secrets.get('sutler-redis') ?? {},
      tls: this.#secrets.get('sutler-redis-tls') ?? {},
      data: {},
      run: {},
    };
    for (const [volume, texts] of Object.entries(files)) {
      await mkdir(join(this.#folder, volume), { recursive: true });
      for (const [file, text] of Object.entries(texts)) {
        const bind = file.endsWith('.conf') ? `\nbind ${address}\n` : '';
        const admin = file.endsWith('.acl') && volume === 'settings' ? ADMIN : '';
        const placed = this.#place(text).replaceAll('127.0.0.1', address);
        await writeFile(join(this.#folder, volume, file), placed + bind + admin);
      }
    }
  }

  start(): void {
    this.#isMeantToRun = true;
    for (const container of CONTAINERS)
      if (!this.#running.has(container.name)) this.#run(container);
  }

  async kill({ stays = false } = {}): Promise<void> {
    this.#isMeantToRun = !stays;
    await Promise.all(
      [...this.#running.values()].map(async (child) => {
        const exited = once(child, 'exit');
        process.kill(-(child.pid ?? 0), 'SIGKILL');
        await exited;
      }),
    );
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT', container?: Container['name']): void {
    for (const [name, { pid }] of this.#running)
      if (container === undefined || container === name) process.kill(-(pid ?? 0), signal);
  }

  async wipe(): Promise<void> {
    for (const volume of ['data', 'run']) {
      await rm(join(this.#folder, volume), { recursive: true });
      await mkdir(join(this.#folder, volume));
    }
  }

  probe(kind: 'livenessProbe' | 'readinessProbe', name: string): Promise<boolean> {
    const container = CONTAINERS.find((each) => each.name === name);
    return this.exec(container?.[kind].exec.command ?? []).then(
      () => true,
      () => false,
    );
  }

  async exec(command: readonly string[]): Promise<string> {
    const [program = '', ...args] = this.#wrapped(command);
    return (await run(program, args, { env: this.#env(), timeout: 5_000 })).stdout;
  }

  #run(container: Container): void {
    const { name, command, args } = container;
    const [program = '', ...rest] = this.#wrapped([...command, ...args]);
    // Detached: the processes that the script starts end with it.
    const child = spawn(program, rest, {
      env: this.#env(),
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const log = createWriteStream(join(this.#folder, `${name}.log`), { flags: 'a' });
    for (const stream of [child.stdout, child.stderr]) stream.pipe(log, { end: false });
    this.#running.set(name, child);
    child.once('exit', () => {
      this.#running.delete(name);
      void sleep(RESTART_MS).then(() => {
        if (this.#isMeantToRun && !this.#running.has(name)) this.#run(container);
      });
    });
  }

  /** A command of the manifest, with the hosts' names of the cluster. */
  #wrapped(command: readonly string[]): readonly string[] {
    const mount = 'mount --bind "$0" /etc/hosts && exec "$@"';
    return [
      'unshare',
      '-rm',
      'sh',
      '-c',
      mount,
      this.#hosts,
      ...command.map((each) => this.#place(each)),
    ];
  }

  #env(): Record<string, string> {
    const values = (CONTAINERS[0]?.env ?? []).flatMap(({ name, value }) =>
      value === undefined ? [] : [[name, value]],
    );
    return {
      PATH: process.env['PATH'] ?? '',
      ...(Object.fromEntries(values) as Record<string, string>),
      POD: this.name,
      MEMORY_LIMIT: String(512 * 2 ** 20),
    };
  }

  /** A text with the pod's folders in the place of what its containers mount. */
  #place(text: string): string {
    const mounts = CONTAINERS.flatMap(({ volumeMounts }) => volumeMounts);
    const paths = [...new Set(mounts.map(({ mountPath }) => mountPath))];
    return text.replaceAll(new RegExp(`(?<![\\w.-])(${paths.join('|')})(?![\\w-])`, 'g'), (path) =>
      join(this.#folder, mounts.find(({ mountPath }) => mountPath === path)?.name ?? ''),
    );
  }
}
