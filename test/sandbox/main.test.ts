import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { describeEnvironment, describeProgress } from '../../sandbox/texts.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));

/** Runs `sutler sandbox` with the examples until it exits. */
function runSandbox(args: readonly string[]): Promise<{ code: unknown; stdout: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [CLI, 'sandbox', ...args], (error, stdout) =>
      resolve({ code: error?.code ?? 0, stdout }),
    );
  });
}

describe('sutler sandbox', () => {
  it('--once provisions and deletes the examples and prints each step', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'sutler-sandbox-'));
    try {
      const { code, stdout } = await runSandbox(['--once', `--data-dir=${dir}`]);
      assert.equal(
        stdout.replaceAll(/\d+ ms/g, 'N ms'),
        `sutler sandbox: sutler with a small Kubernetes API and a sample CSI driver.
Everything runs on this machine. No cluster is touched.

Provisioning the example claims:
  default/website    requested after N ms, PersistentVolume after N ms, Bound after N ms
  default/archive    requested after N ms, PersistentVolume after N ms, Bound after N ms
  default/database   requested after N ms, PersistentVolume after N ms, Bound after N ms

Deleting the example claims:
  volumes, records and jobs gone after N ms

Done: every claim was provisioned and deleted, and nothing is left.
`,
      );
      assert.equal(code, 0);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('names the steps that a claim has not reached', () =>
    assert.equal(
      describeProgress({ claim: 'default/website', requestedMs: 12.3, selectedNodes: [] }),
      '  default/website    requested after 12 ms, PersistentVolume never, Bound never',
    ));

  it('prints the addresses and what to try next', () => {
    const facts = {
      'sandbox-api server': 'https://127.0.0.1:1',
      'sandbox-driver socket': 'unix:///data/csi.sock',
      redis: 'redis://127.0.0.1:2',
      'jobs pid': '33',
      'jobs http': 'http://127.0.0.1:3',
      dashboard: 'http://127.0.0.1:4/queues/',
      'dashboard user': 'admin',
      'dashboard password': 'secret',
    };
    const environment = { kubeconfig: '/data/kubeconfig', socket: '', redisUrl: '', facts };
    const next = { logsFolder: '/data/logs', examplesFolder: 'examples', claim: 'website' };
    assert.equal(
      describeEnvironment(environment, next),
      `
Running:
  Kubernetes API   https://127.0.0.1:1
  sample driver    unix:///data/csi.sock
  Redis            redis://127.0.0.1:2
  jobs             pid 33       http://127.0.0.1:3
  logs             /data/logs

Open the dashboard:
  http://127.0.0.1:4/queues/  (user admin, password secret)

Or try in another terminal:
  export KUBECONFIG=/data/kubeconfig
  kubectl get pvc,pv,sc
  kubectl get pods,nodes,csinodes -o wide
  kubectl describe pvc website
  kubectl delete pvc website    # deletes its volume too
  kubectl apply -f examples     # creates it again

Press Ctrl-C to stop everything.`,
    );
  });
});
