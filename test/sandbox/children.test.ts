import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLog } from '#src/runtime/log.ts';
import { startChild } from '../../sandbox/children.ts';
import { until } from '../harness/until.ts';

const SCRIPT = {
  ready: `
    process.send({ kind: 'announce', facts: { pid: String(process.pid) } });
    process.on('SIGTERM', () => process.exit(0));
    setInterval(() => {}, 1000)`,
  ignoringSigterm: `
    process.on('SIGTERM', () => {});
    process.send({ kind: 'announce', facts: {} });
    setInterval(() => {}, 1000)`,
  refusing: `process.exit(2)`,
};

function start(script: string, onUsageError: (name: string) => void = () => undefined) {
  const plan = {
    name: 'child',
    command: [process.execPath, '-e', script] as [string, ...string[]],
    env: process.env,
    output: () => undefined,
  };
  return startChild(plan, { log: silentLog, onUsageError });
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe('startChild', () => {
  it('passes on what the child announces, and leaves no process behind when it is stopped', async () => {
    const child = start(SCRIPT.ready);
    const { pid } = child;
    assert.deepEqual(await child.announced, { pid: String(pid) });
    await child.stop(5000);
    assert.ok(!isAlive(Number(pid)));
  });

  it('kills a child that ignores SIGTERM', async () => {
    const child = start(SCRIPT.ignoringSigterm);
    await child.announced;
    const { pid } = child;
    await child.stop(50);
    assert.ok(pid !== undefined && !isAlive(pid));
  });

  it('starts a child again after it was killed', async () => {
    const child = start(SCRIPT.ready);
    const { pid: first } = await child.announced;
    process.kill(Number(first), 'SIGKILL');
    await until(() => child.pid !== undefined && child.pid !== Number(first), 'it has another pid');
    await child.stop(5000);
  });

  it('does not start a child again that exited with status 2', async () => {
    const refused = await new Promise<string>((resolve) => {
      start(SCRIPT.refusing, resolve);
    });
    assert.equal(refused, 'child');
  });
});
