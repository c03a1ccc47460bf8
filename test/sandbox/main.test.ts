import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findKubectls } from '../harness/sandbox-kubectl.ts';
import { until } from '../harness/until.ts';
import {
  describeEnvironment,
  describePod,
  describeProgress,
  shellSettings,
} from '../../sandbox/texts.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));

/** Runs `sutler sandbox` with the examples until it exits. */
function runSandbox(args: readonly string[]): Promise<{ code: unknown; stdout: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [CLI, 'sandbox', ...args], (error, stdout) =>
      resolve({ code: error?.code ?? 0, stdout }),
    );
  });
}

// Each run has processes of its own, which wait for one another.
describe('sutler sandbox', { concurrency: true }, () => {
  it('--once provisions and deletes the examples and prints each step', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'sutler-sandbox-'));
    try {
      const { code, stdout } = await runSandbox(['--once', `--data-dir=${dir}`]);
      const steps = 'requested after N ms, PV after N ms, Bound after N ms on NODE';
      assert.equal(
        stdout.replaceAll(/\d+ ms/g, 'N ms').replaceAll(/node-([ab])\d in zone-\1/g, 'NODE'),
        `sutler sandbox: sutler with a small Kubernetes API and a sample CSI driver.
Everything runs on this machine. No cluster is touched.

Provisioning the example claims:
  default/website    ${steps}
  default/archive    ${steps}
  default/database   ${steps}
  default/report     ${steps}
  default/backup     ${steps}
  default/data-db-0  ${steps}
  default/data-db-1  ${steps}
  default/data-db-2  ${steps}

The example pods:
  default/report     Running after N ms on NODE
  default/backup     Running after N ms on NODE; no room on NODE
  default/db-0       Running after N ms on NODE
  default/db-1       Running after N ms on NODE
  default/db-2       Running after N ms on NODE

Deleting the example claims:
  volumes and jobs gone after N ms

Done: every claim was provisioned and deleted, and nothing is left.
`,
      );
      assert.equal(code, 0);
      const lineOf = (name: string): string =>
        stdout.split('\n').findLast((line) => line.startsWith(`  default/${name} `)) ?? '';
      assert.match(lineOf('backup'), /on node-b2 in zone-b; no room on node-b1 in zone-b$/);
      const zones = ['db-0', 'db-1', 'db-2'].map((pod) => lineOf(pod).slice(-1));
      assert.equal(new Set(zones).size, 2, `zones of the StatefulSet: ${zones.join(', ')}`);
      for (const pod of ['report', 'backup'])
        assert.equal(
          /on (\S+)/.exec(lineOf(pod))?.[1],
          /Bound .* on (\S+)/.exec(
            stdout.split('\n').find((l) => l.startsWith(`  default/${pod} `)) ?? '',
          )?.[1],
        );
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('--enable-capacity and --event-source=webhook have the scheduler leave out a node that is too small, and do the examples without a watch of claims', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'sutler-sandbox-'));
    try {
      const flags = ['--enable-capacity', '--event-source=webhook'];
      const { code, stdout } = await runSandbox(['--once', ...flags, `--data-dir=${dir}`]);
      assert.equal(code, 0, stdout);
      assert.match(stdout, /default\/backup +Running after \d+ ms on node-b2 in zone-b$/m);
      assert.match(
        stdout,
        /\nDone: every claim was provisioned and deleted, and nothing is left\.\n/,
      );
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('--topology=false gives all nodes one pool, and pods run all the same', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'sutler-sandbox-'));
    try {
      const args = ['--once', '--topology=false', `--data-dir=${dir}`];
      const { code, stdout } = await runSandbox(args);
      assert.equal(code, 0, stdout);
      assert.match(stdout, /default\/backup +Running after \d+ ms on node-b1 in zone-b$/m);
      assert.doesNotMatch(stdout, /Bound after \d+ ms on/);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('prints commands that work in a shell, kubectl apply without a warning', async (t) => {
    const dir = await mkdtemp(join(tmpdir(), 'sutler-sandbox-'));
    t.after(() => rm(dir, { recursive: true, force: true }));
    const sandbox = spawn(process.execPath, [CLI, 'sandbox', `--data-dir=${dir}`]);
    const ended = once(sandbox, 'exit');
    t.after(async () => {
      sandbox.kill('SIGTERM');
      await ended;
    });
    let printed = '';
    sandbox.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text));
    await until(() => printed.includes('Press Ctrl-C'), 'the sandbox is up', 60_000);
    const tries = printed.slice(printed.indexOf('Or try in another terminal:'));
    const [read = '', ...commands] = [...tries.matchAll(/^ {2}(\S.*)$/gm)].map(([, line]) => line);
    assert.equal(commands.filter((line) => line?.startsWith('sutler ')).length, 5);
    const [kubectl] = await findKubectls(process.env);
    for (const command of commands) {
      if (command?.startsWith('kubectl') && kubectl === undefined) continue;
      const script = `${read}\n${command}`;
      const { status, stderr } = spawnSync('sh', ['-c', script], { encoding: 'utf8' });
      const isRefused = command?.startsWith('sutler uninstall') === true;
      assert.equal(status, isRefused ? 1 : 0, `${command}: ${stderr}`);
      assert.doesNotMatch(stderr, /Warning/, command);
      if (isRefused) assert.match(stderr, /^sutler uninstall: \w+ is still running/);
    }
  });

  it('the file for a shell exports KUBECONFIG only, and gives sutler the gateway and Redis', () => {
    const facts = { driver: 'unix:///g' };
    const environment = { kubeconfig: '/k', socket: '', redisUrl: 'redis://r', facts };
    const settings = shellSettings(environment, { cli: '-p', isOwnRedis: true });
    const values = 'process.env.SUTLER_GATEWAY + " " + process.env.REDIS_URL';
    const both = `${settings}sutler '${values}'\n'${process.execPath}' -p '${values}'`;
    const { stdout } = spawnSync('sh', ['-c', both], { env: {}, encoding: 'utf8' });
    assert.equal(stdout, 'unix:///g redis://r\nundefined undefined\n');
    assert.deepEqual(settings.match(/export \w+/g), ['export KUBECONFIG']);
  });

  it('names the steps that a claim has not reached', () =>
    assert.equal(
      describeProgress({ claim: 'default/website', requestedMs: 12.3, selectedNodes: [] }),
      '  default/website    requested after 12 ms, PV never, Bound never',
    ));

  it('names the node of a pod, and those where its volume had no room', () => {
    const backup = { claim: 'default/data', selectedNodes: ['node-b1', 'other', 'node-b2'] };
    const foreign = { claim: 'default/other', selectedNodes: ['node-a1'] };
    const pod = { pod: 'default/backup', claims: ['default/data'] };
    assert.equal(
      describePod({ ...pod, runningMs: 7.2, node: 'node-b2' }, [backup, foreign]),
      '  default/backup     Running after 7 ms on node-b2 in zone-b; ' +
        'no room on node-b1 in zone-b, other',
    );
    assert.equal(describePod(pod, []), '  default/backup     Running never');
  });

  it('prints where ingest takes webhooks', () => {
    const facts = {
      'ingest events': 'https://127.0.0.1:5/events',
      'ingest admission': 'https://127.0.0.1:6/admission',
    };
    const environment = { kubeconfig: '', socket: '', redisUrl: '', facts };
    const next = {
      logsFolder: '/data/logs',
      examplesFolder: 'examples',
      claim: 'website',
      shellFile: '/data/shell',
    };
    const text = describeEnvironment(environment, next);
    assert.match(text, /^ {2}POST events {6}https:\/\/127\.0\.0\.1:5\/events$/m);
    assert.match(text, /^ {2}POST admission {3}https:\/\/127\.0\.0\.1:6\/admission$/m);
  });

  it('prints the addresses and what to try next', () => {
    const facts = {
      'sandbox-api server': 'https://127.0.0.1:1',
      'sandbox-driver socket': 'unix:///data/csi.sock',
      redis: 'redis://127.0.0.1:2',
      'all pid': '33',
      http: 'http://127.0.0.1:3',
      dashboard: 'http://127.0.0.1:4/',
      'dashboard user': 'admin',
      'dashboard password': 'secret',
    };
    const environment = { kubeconfig: '/data/kubeconfig', socket: '', redisUrl: '', facts };
    const next = {
      logsFolder: '/data/logs',
      examplesFolder: 'examples',
      claim: 'website',
      shellFile: '/data/shell',
    };
    assert.equal(
      describeEnvironment(environment, next),
      `
Running:
  Kubernetes API   https://127.0.0.1:1
  sample driver    unix:///data/csi.sock
  Redis            redis://127.0.0.1:2
  sutler           pid 33       http://127.0.0.1:3
  logs             /data/logs

Open the dashboard:
  http://127.0.0.1:4/  (user admin, password secret)

Or try in another terminal:
  . /data/shell    # points kubectl and sutler at the sandbox
  kubectl get pvc,pv,sc
  kubectl get pods,nodes,csinodes -o wide
  kubectl describe pvc website
  kubectl delete pvc website    # deletes its volume too
  kubectl apply -f examples     # creates it again
  sutler audit                  # compares the driver's volumes with the PersistentVolumes
  sutler drain --wait           # new claims wait from now on
  sutler drain --undo
  sutler uninstall              # refuses, since sutler is at work
  sutler --help

Press Ctrl-C to stop everything.`,
    );
  });
});
