import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Child, startChild } from '../../sandbox/children.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestRedis } from '../harness/redis.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { openTlsFront } from '../harness/tls-front.ts';
import { until } from '../harness/until.ts';
import { pluginKubeconfig } from './plugin-kubeconfig.ts';

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL('../../../scripts/package.mjs', import.meta.url));
const PASSWORD = 'open sesame, please';

describe('npm’s tarball, installed into an empty folder', () => {
  const closers = new Closers();
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let cli = '';
  let redisUrl = '';
  before(async () => {
    folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis();
    closers.add('Redis', () => redis.close());
    redisUrl = redis.url;
    await run(process.execPath, [PACKAGE, folder.file('')]);
    const [tarball = ''] = (await readdir(folder.file(''))).filter((file) => file.endsWith('.tgz'));
    await mkdir(folder.file('empty'));
    // Offline, so it can need no other package.
    await run('npm', ['install', '--offline', '--no-audit', '--no-fund', folder.file(tarball)], {
      cwd: folder.file('empty'),
    });
    cli = folder.file('empty/node_modules/sutler/dist/cli.js');
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const start = ([name = '', ...argv]: readonly string[]): Child => {
    const env = { PATH: process.env['PATH'], REDIS_URL: redisUrl };
    const child = startChild(
      {
        name,
        command: [process.execPath, cli, name, ...argv],
        env: { ...env, SUTLER_DASHBOARD_PASSWORD: PASSWORD },
        output: () => undefined,
      },
      { log: silentLog, onUsageError: () => undefined },
    );
    closers.add(name, () => child.stop(10_000));
    return child;
  };

  it('logs in by the exec plug-in of a kubeconfig', async () => {
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const kubeconfig = folder.file('kubeconfig');
    const front = await openTlsFront(cluster, folder.path);
    closers.add('TLS', () => front.close());
    await writeFile(kubeconfig, pluginKubeconfig(front));
    // It announces itself when the plug-in has returned a credential.
    const gateway = `--gateway=unix://${folder.file('gateway.sock')}`;
    await start(['jobs', gateway, `--kubeconfig=${kubeconfig}`]).announced;
  });

  it('shows the dashboard with its pages', async () => {
    const facts = await start(['dashboard', '--dashboard-address=127.0.0.1:0']).announced;
    const headers = { authorization: `Basic ${btoa(`admin:${PASSWORD}`)}` };
    const url = facts['dashboard'] ?? '';
    let html = '';
    // 503 until it has reached Redis.
    await until(async () => {
      const page = await fetch(url, { headers });
      html = await page.text();
      return page.ok;
    }, 'the dashboard answers');
    const [, script = ''] = /<script[^>]+src="([^"]+)"/.exec(html) ?? [];
    const base = /<base href="([^"]+)"/.exec(html)?.[1] ?? '';
    const { status } = await fetch(new URL(script, new URL(base, url)), { headers });
    assert.equal(status, 200, script);
  });
});
