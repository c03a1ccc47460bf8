import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findKubectls } from '../harness/sandbox-kubectl.ts';
import { until } from '../harness/until.ts';
import { shellSettings } from '../../sandbox/texts.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));

interface Run {
  readonly code: unknown;
  readonly stdout: string;
  readonly stderr: string;
}

// Each run has processes of its own, which wait for one another.
describe('sutler sandbox', { concurrency: true }, () => {
  let dir: string;
  before(async () => (dir = await mkdtemp(join(tmpdir(), 'sutler-sandbox-'))));
  after(() => rm(dir, { recursive: true, force: true }));

  /** Runs `sutler sandbox` until it exits. */
  const run = (name: string, ...args: readonly string[]): Promise<Run> =>
    new Promise((resolve) => {
      const command = [CLI, 'sandbox', `--data-dir=${join(dir, name)}`, ...args];
      execFile(process.execPath, command, (error, stdout, stderr) =>
        resolve({ code: error?.code ?? 0, stdout, stderr }),
      );
    });

  describe('--once', { concurrency: false }, () => {
    let result: Run;
    before(async () => (result = await run('once', '--once')));

    it('provisions and deletes the examples, and ends with status 0', () => {
      const { code, stdout } = result;
      assert.equal(code, 0, stdout);
      for (const name of ['website', 'archive', 'database'])
        assert.match(
          stdout,
          new RegExp(String.raw`^ {2}claim default/${name} +Bound after \d+ ms on node-`, 'm'),
        );
      assert.match(stdout, /\nDone: every claim was provisioned and deleted, and nothing is left/);
    });

    it('has the volume of a pod on the pod’s node, in the zone that the pod names', () => {
      const place = /on node-b1 in zone-b$/;
      for (const kind of ['claim', 'pod  ']) assert.match(lineOf(`${kind} default/report`), place);
    });

    it('tells that the first node of a pod has no room', () => {
      const place = /on node-b2 in zone-b; no room on node-b1 in zone-b$/;
      assert.match(lineOf('pod   default/backup'), place);
    });

    function lineOf(start: string): string {
      const lines = result.stdout.split('\n');
      return lines.find((line) => line.startsWith(`  ${start} `)) ?? '';
    }
  });

  it('--topology=false gives all nodes one pool, and --event-source=webhook tells of claims by events', async () => {
    const { code, stdout } = await run('b', '--once', '--topology=false', '--event-source=webhook');
    assert.equal(code, 0, stdout);
    assert.match(stdout, /default\/backup +Running after \d+ ms on node-b1 in zone-b$/m);
    assert.doesNotMatch(stdout, /Bound after \d+ ms on/);
  });

  it('refuses a folder of examples that can’t be read', async () => {
    const { code, stderr } = await run('bad', '--examples=/none');
    assert.equal(code, 2);
    assert.match(stderr, /^sutler sandbox: --examples: the folder \/none can't be read/);
  });

  describe('without --once', { concurrency: false }, () => {
    let printed = '';
    let sandbox: ReturnType<typeof spawn>;
    let ended: Promise<unknown[]>;
    before(async () => {
      await mkdir(join(dir, 'tmp'));
      const args = [`--data-dir=${join(dir, 'open')}`, '--leader-election'];
      sandbox = spawn(process.execPath, [CLI, 'sandbox', ...args], {
        env: { ...process.env, TMPDIR: join(dir, 'tmp') },
      });
      ended = once(sandbox, 'exit');
      sandbox.stdout?.setEncoding('utf8').on('data', (text: string) => (printed += text));
      await until(() => printed.includes('Press Ctrl-C'), 'the sandbox is up', 60_000);
    });
    after(() => sandbox.kill('SIGKILL'));

    it('prints the addresses of what runs, and the login of the dashboard', () => {
      for (const line of [
        /^ {2}Kubernetes API {3}http:\/\/127\.0\.0\.1:\d+\/[\w-]+$/m,
        /^ {2}sample driver {4}unix:\/\/\S+\/csi\.sock$/m,
        /^ {2}sutler {11}pid \d+ +http:\/\/127\.0\.0\.1:\d+$/m,
        /^Open the dashboard:\n {2}http:\/\/127\.0\.0\.1:\d+\/ {2}\(user admin, password \S+\)$/m,
      ])
        assert.match(printed, line);
    });

    it('prints commands that work in a shell, kubectl apply without a warning', async () => {
      const tries = printed.slice(printed.indexOf('Or try in another terminal:'));
      const [read, ...commands] = [...tries.matchAll(/^ {2}(\S.*)$/gm)].map(([, line]) => line);
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

    it('has one page of health for driver, ingest and jobs, with upstream’s check of the Lease', async () => {
      const { status, text } = await page('/readyz');
      assert.equal(status, 200, text);
      for (const part of ['driver', 'ingest/driver', 'jobs/driver'])
        assert.match(text, new RegExp(String.raw`^\[\+\]${part} `, 'm'));
      const lease = await page('/healthz/leader-election');
      assert.equal(lease.status, 200, lease.text);
    });

    it('has one page of metrics for them', async () => {
      const { text } = await page('/metrics');
      for (const name of [
        'csi_sidecar_operations_seconds_count',
        'controller_persistentvolumeclaim_provision_total',
        'leader_election_master_status',
        'sutler_kube_requests_total',
      ])
        assert.match(text, new RegExp(String.raw`^${name}\b`, 'm'));
    });

    it('ends on Ctrl-C with status 0, and leaves no process and no temporary folder', async () => {
      const [, pid = ''] = /^ {2}sutler +pid (\d+)/m.exec(printed) ?? [];
      sandbox.kill('SIGINT');
      assert.deepEqual(await ended, [0, null]);
      assert.throws(() => process.kill(Number(pid), 0), /ESRCH/);
      const left = await readdir(join(dir, 'tmp'));
      assert.deepEqual(
        left.filter((name) => name.startsWith('sutler-')),
        [],
      );
    });

    async function page(path: string): Promise<{ status: number; text: string }> {
      const [, url = ''] = /^ {2}sutler +pid \d+ +(\S+)$/m.exec(printed) ?? [];
      const answer = await fetch(`${url}${path}`);
      return { status: answer.status, text: await answer.text() };
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
});
