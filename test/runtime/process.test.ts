import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { describe, it } from 'node:test';
import { defineFlags, UsageError } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';
import { runProcess, type Host, type ProcessContext } from '#src/runtime/process.ts';

const table = defineFlags({ ...processFlags, size: { type: 'int', default: 1, help: 'Size.' } });
type Context = ProcessContext<typeof table>;

class FakeHost extends EventEmitter implements Host {
  readonly argv = [];
  readonly env: Record<string, string> = {};
  readonly pid = 1;
  readonly sent: unknown[] = [];
  out = '';
  err = '';
  readonly stdout = { write: (text: string) => (this.out += text) };
  readonly stderr = { write: (text: string) => (this.err += text) };
  readonly exits: number[] = [];
  errAtExit = '';
  exit(code: number): void {
    this.errAtExit = this.err;
    this.exits.push(code);
  }
  readonly send: Host['send'];
  constructor(isChild: boolean) {
    super();
    if (isChild) this.send = (message) => this.sent.push(message);
  }
}

async function run(
  argv: string[],
  start: (context: Context, host: FakeHost) => Promise<void> = () => Promise.resolve(),
  isChild = true,
): Promise<FakeHost> {
  const host = new FakeHost(isChild);
  const invocation = {
    host,
    argv,
    known: defineFlags({ other: { type: 'string', default: '', help: 'x' } }),
  };
  await runProcess(invocation, {
    name: 'test',
    summary: 'tests',
    table,
    start: (context) => start(context, host),
  });
  return host;
}

describe('runProcess', () => {
  it('exits with 2 and prints one line for an unknown flag', async () => {
    const host = await run(['--nonsense']);
    assert.deepEqual(host.exits, [2]);
    assert.match(host.err, /^sutler test: unknown flag --nonsense[^\n]*\n$/);
  });

  it('exits with 2 and one line for a UsageError of start, and closes what was open', async () => {
    let closed = false;
    const host = await run([], (context) => {
      context.closers.add('thing', () => (closed = true));
      return Promise.reject(new UsageError('the port\nis in use'));
    });
    assert.deepEqual(host.exits, [2]);
    assert.match(host.err, /^sutler test: the port is in use\n$/);
    assert.ok(closed);
  });

  it('exits with 1 when start fails for another reason', async () => {
    assert.deepEqual((await run([], () => Promise.reject(new Error('defect')))).exits, [1]);
  });

  it('prints help and version and exits with 0', async () => {
    const help = await run(['--help']);
    assert.match(help.out, /--size/);
    assert.deepEqual(help.exits, [0]);
    assert.match((await run(['--version'])).out, /^sutler \d+\.\d+\.\d+\n$/);
  });

  for (const [what, event] of [
    ['after SIGTERM', 'SIGTERM'],
    ['when its terminal is closed', 'SIGHUP'],
    ['when its parent process ends', 'disconnect'],
  ])
    it(`exits with 0 ${what}, when everything is closed (R-35)`, async () => {
      let closed = false;
      const host = await run([], (context, itsHost) => {
        context.closers.add('thing', () => (closed = true));
        setImmediate(() => itsHost.emit(event ?? ''));
        return Promise.resolve();
      });
      assert.deepEqual(host.exits, [0]);
      assert.ok(closed);
    });

  it('exits at once at a second signal that comes later', async (t) => {
    t.mock.timers.enable({ apis: ['Date'], now: 1_000_000 });
    const host = await run([], (context, itsHost) => {
      context.closers.add('slow', () => {
        t.mock.timers.setTime(1_002_000);
        itsHost.emit('SIGINT');
      });
      setImmediate(() => itsHost.emit('SIGINT'));
      return Promise.resolve();
    });
    assert.equal(host.exits[0], 1);
  });

  it('counts two signals within a second as one, since a parent may forward a signal', async () => {
    const host = await run([], (context, itsHost) => {
      context.closers.add('slow', () => {
        itsHost.emit('SIGTERM');
      });
      setImmediate(() => itsHost.emit('SIGTERM'));
      return Promise.resolve();
    });
    assert.deepEqual(host.exits, [0]);
  });

  it('logs once which given flags belong to other processes, unless it is a child', async () => {
    const start = (context: Context): Promise<void> => Promise.resolve(context.stop(0));
    const argv = ['--other=x', '--other=y'];
    const { err } = await run(argv, start, false);
    assert.equal(err.match(/not used here flags=\["--other"\]/g)?.length, 1);
    assert.doesNotMatch((await run(argv, start)).err, /not used/);
  });

  const burst = (context: Context): void => {
    for (const line of ['one', 'two', 'three']) context.log.info(line);
  };

  it('writes every line of its log before it exits', async () => {
    const host = await run([], (context) => {
      burst(context);
      return Promise.reject(new Error('defect'));
    });
    assert.match(host.errAtExit, /one\n.*two\n.*three\n.*start failed/);
  });
});
