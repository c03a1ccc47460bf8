import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { claims } from '#src/kube/resources.ts';
import { openCgroup } from '../harness/cgroup.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { onDropInBed } from '../harness/drop-in-bed.ts';
import { podEnv } from '../harness/pod-env.ts';
import { startProgram } from '../harness/program.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';

const run = promisify(execFile);
// Tests run from dist-dev/test/real.
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** Folder of a memory cgroup in which this user may make others. */
const PARENT = process.env['MEMORY_CGROUP'] ?? '';
const open = realControlPlane(process.env, { binder: true });

describe(
  'a container with a limit of 128 MiB',
  { skip: PARENT === '' && 'no MEMORY_CGROUP' },
  () => {
    let plane: RealControlPlane;
    let folder: Awaited<ReturnType<typeof makeFolder>>;
    before(async () => {
      folder = await makeFolder();
      await run(process.execPath, [`${ROOT}/scripts/bundle.mjs`, folder.file('dist')]);
      await run('cp', [`${ROOT}/package.json`, folder.file('package.json')]);
      plane = await open();
    });
    after(async () => {
      await plane.close();
      await folder.remove();
    });

    it('binds 300 claims at once, then 600 in turn, beside a command, and is not killed', () =>
      onDropInBed(plane, {}, async (bed) => {
        const { namespace } = bed;
        const cgroup = await openCgroup(PARENT, 128);
        const { kubeconfig } = plane;
        const pod = await podEnv({ kubeconfig, folder: folder.file('account') });
        const env = { ...pod, TMPDIR: folder.file('') };
        const cli = folder.file('dist/cli.js');
        const lease = `--leader-election-namespace=${namespace}`;
        const args = [`--csi-address=${bed.driver.socket}`, '--leader-election', lease];
        const [file = '', ...before] = await cgroup.command(process.execPath, [cli, ...args]);
        const sutler = startProgram(file, before, { env });
        try {
          const create = async (names: readonly string[]): Promise<void> => {
            await Promise.all(names.map((name) => bed.createClaim(name)));
            for (const name of names)
              await until(() => bed.isBound(name), `${name} is Bound`, 120_000);
          };
          const burst = Array.from({ length: 300 }, (_, i) => `burst-${i}`);
          await create(burst);
          const [program = '', ...status] = await cgroup.command(process.execPath, [cli, 'status']);
          const { stdout } = await run(program, status, { env });
          assert.match(stdout, /: fine\n/);
          for (let turn = 0; turn < 12; turn += 1) {
            const names = Array.from({ length: 50 }, (_, i) => `turn-${turn}-${i}`);
            await create(names);
            for (const name of names) await bed.kube.delete(claims, { namespace, name });
          }
          for (const name of burst) await bed.kube.delete(claims, { namespace, name });
          await until(() => bed.handles().length === 0, 'all volumes are deleted', 120_000);
          assert.equal(await cgroup.kills(), 0);
          assert.ok(!sutler.hasEnded, sutler.output());
        } finally {
          await sutler.stop();
          await cgroup.close();
        }
      }));
  },
);
