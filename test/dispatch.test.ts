import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { dispatch, flagsOf, type Process } from '#src/dispatch.ts';
import { defineFlags } from '#src/runtime/flags.ts';
import type { Host, Invocation } from '#src/runtime/process.ts';

// As compiled: when tests are joined, the parts of a joined program have no names.
const CLI = `${fileURLToPath(new URL('../../dist/', import.meta.url))}cli.js`;

/** Dispatches an argument list to two processes, of which each only records how it was started. */
async function run(...words: string[]) {
  const started: { readonly name: string; readonly invocation: Invocation }[] = [];
  const loaded: string[] = [];
  const describeProcess = (name: string): Process => ({
    flags: defineFlags({ [`${name}-size`]: { type: 'int', default: 1, help: 'Size.' } }),
    summary: `does ${name}.`,
    load: () => {
      loaded.push(name);
      const main = (invocation: Invocation): Promise<void> => {
        started.push({ name, invocation });
        return Promise.resolve();
      };
      return Promise.resolve({ main });
    },
  });
  const processes: Record<string, Process> = {
    read: describeProcess('read'),
    write: describeProcess('write'),
    drop: { ...describeProcess('drop'), command: { exits: {}, examples: [] } },
  };
  const printed = { out: '', err: '' };
  const host: Host = Object.assign(new EventEmitter(), {
    argv: ['node', 'sutler', ...words],
    env: {},
    pid: 1,
    stdout: { write: (text: string) => (printed.out += text) },
    stderr: { write: (text: string) => (printed.err += text) },
    exit: () => assert.fail('dispatch must not exit'),
  });
  const code = await dispatch(host, processes);
  return { code, ...printed, started, loaded, host, processes };
}

describe('dispatch', () => {
  it('starts the named process only, with the other arguments and the flags of all but commands', async () => {
    const { code, started, loaded, host, processes } = await run('write', '--write-size=2', '-v=4');
    assert.equal(code, undefined);
    assert.deepEqual(loaded, ['write']);
    const [{ name, invocation } = assert.fail('nothing was started')] = started;
    assert.equal(name, 'write');
    assert.equal(invocation.host, host);
    assert.deepEqual(invocation.argv, ['--write-size=2', '-v=4']);
    assert.deepEqual(invocation.known, flagsOf(processes));
    assert.deepEqual(Object.keys(invocation.known).sort(), ['read-size', 'write-size']);
  });

  for (const words of [['help'], ['--help'], ['-h']])
    it(`lists the processes for "sutler ${words.join(' ')}"`, async () => {
      const { code, out, loaded } = await run(...words);
      assert.equal(code, 0);
      assert.match(out, /^Usage: sutler \[PROCESS\]/);
      assert.match(out, /^ {2}read +does read\.$/m);
      assert.match(out, /^ {2}write +does write\.\n\nCommands, .*:\n {2}drop +does drop\.$/m);
      assert.deepEqual(loaded, []);
    });

  it('prints the version', async () => {
    const { code, out } = await run('--version');
    assert.equal(code, 0);
    assert.match(out, /^sutler \d+\.\d+\.\d+\n$/);
  });

  for (const name of ['reed', 'toString'])
    it(`returns 2 for the unknown process "${name}" and names all`, async () => {
      const { code, out, err, loaded } = await run(name);
      assert.equal(code, 2);
      const unknown = `there is no process or command "${name}"`;
      assert.equal(err, `sutler: ${unknown}; choose read, write, drop\n`);
      assert.deepEqual([out, loaded], ['', []]);
    });
});

describe('the program', () => {
  it('ends at a SIGTERM while it still loads its process', async () => {
    // Sends the signal in the place of loading the process, and keeps the program waiting for it.
    const hook =
      'export const load = (url, context, next) => url.endsWith("/csi-gateway/main.js")' +
      ' ? (process.kill(process.pid, "SIGTERM"), new Promise(() => {})) : next(url, context)';
    const hookUrl = `data:text/javascript,${encodeURIComponent(hook)}`;
    const setUp =
      "import { register } from 'node:module'; setInterval(() => undefined, 1_000); " +
      `register(${JSON.stringify(hookUrl)})`;
    const child = spawn(
      process.execPath,
      [`--import=data:text/javascript,${encodeURIComponent(setUp)}`, CLI, 'csi-gateway'],
      { stdio: 'ignore' },
    );
    assert.deepEqual(await once(child, 'exit'), [143, null]);
  });
});
