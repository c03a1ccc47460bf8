import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createLogger, type Logger } from '#src/runtime/log.ts';

function lines(
  verbosity: number,
  format: 'text' | 'json',
): { log: ReturnType<typeof createLogger>; written: string[] } {
  const written: string[] = [];
  return {
    log: createLogger({
      name: 'jobs',
      verbosity,
      format,
      write: (line) => void written.push(line),
    }),
    written,
  };
}

describe('log', () => {
  it('writes a constant message and its fields as text', () => {
    const { log, written } = lines(0, 'text');
    log.info({ claim: 'ns/name', reason: 'two words' }, 'claim seen');
    assert.match(
      written[0] ?? '',
      /^\S+Z INFO jobs: claim seen claim=ns\/name reason="two words"\n$/,
    );
  });

  it('writes JSON, with the level by name', () => {
    const { log, written } = lines(0, 'json');
    log.warn({ a: 1 }, 'm');
    const { level, process, msg, a } = JSON.parse(written[0] ?? '') as Record<string, unknown>;
    assert.deepEqual([level, process, msg, a], ['warn', 'jobs', 'm', 1]);
  });

  it('writes each field once, and prefers the field of the line to that of the logger', () => {
    const { log, written } = lines(0, 'json');
    log.child({ driver: 'a', part: 'jobs' }).child({ driver: 'b' }).info({ driver: 'c' }, 'm');
    const keys = [...(written[0] ?? '').matchAll(/"(\w+)":/g)].map(([, key]) => key);
    assert.deepEqual(keys, ['level', 'time', 'process', 'driver', 'part', 'msg']);
    assert.match(written[0] ?? '', /"driver":"c","part":"jobs"/);
  });

  for (const [verbosity, count] of [
    [3, 1],
    [4, 2],
    [6, 3],
  ] as const) {
    it(`writes ${count} of info, debug and trace at -v=${verbosity}`, () => {
      const { log, written } = lines(verbosity, 'text');
      log.info('i');
      log.debug('d');
      log.trace('t');
      assert.equal(written.length, count);
    });
  }

  it('shows the message of an error, without its stack', () => {
    const { log, written } = lines(0, 'text');
    log.error({ err: new Error('it broke') }, 'm');
    assert.match(written[0] ?? '', /err="it broke"\n$/);
  });

  it('writes only the class name of an object that is not plain', () => {
    class Client {
      readonly password = 'planted';
    }
    const { log, written } = lines(0, 'json');
    log.child({ part: 'jobs' }).info(new Client(), 'm');
    assert.doesNotMatch(written[0] ?? '', /planted/);
    assert.match(written[0] ?? '', /"part":"jobs"/);
  });

  it('writes the stack of an error, unless it is a warning without -v=4', () => {
    const hasStack = (verbosity: number, level: 'warn' | 'error'): boolean => {
      const { log, written } = lines(verbosity, 'json');
      log[level]({ err: new Error('it broke', { cause: new Error('why') }) }, 'm');
      assert.match(written[0] ?? '', /"it broke".*"why"/);
      return (written[0] ?? '').includes('"stack":');
    };
    assert.deepEqual(
      [hasStack(0, 'warn'), hasStack(4, 'warn'), hasStack(0, 'error')],
      [false, true, true],
    );
  });

  const failure = (): Error => {
    const command = ['AUTH', 'planted'];
    const login = { password: 'planted' };
    const inner = Object.assign(new Error('inner', { cause: { login } }), { command });
    const cause = new AggregateError([inner], 'both', { cause: inner });
    return Object.assign(new Error('it broke at redis://u:planted@h', { cause }), { command });
  };

  for (const [way, write] of Object.entries<(log: Logger) => void>({
    'as the first argument': (log) => log.error(failure()),
    'under err': (log) => log.error({ err: failure() }, 'm'),
    'in any other field': (log) => log.error({ cause: failure(), list: [failure()] }, 'm'),
    'as an argument of the message': (log) =>
      log.error('m %j %o %s', failure(), failure(), failure()),
    'in the message': (log) => log.error(`m ${failure().message}`),
    'in the fields of a child': (log) => log.child({ cause: failure() }).child({}).error('m'),
  })) {
    it(`drops what an error carries ${way}`, () => {
      for (const format of ['text', 'json'] as const) {
        const { log, written } = lines(6, format);
        write(log);
        assert.equal(written.length, 1);
        assert.ok(!(written[0] ?? 'planted').includes('planted'), written[0]);
      }
    });
  }

  it('writes no control characters, in names, values, messages and errors', () => {
    const evil = 'a\u001b[31m\u009b2J\u007f\u202e\r\nforged';
    for (const format of ['text', 'json'] as const) {
      const { log, written } = lines(0, format);
      log.child({ child: evil }).info({ [evil]: evil, err: new Error(evil) }, evil);
      assert.match(written[0] ?? '', /^[^\p{Cc}\p{Cf}]+\n$/u);
      assert.match(written[0] ?? '', /\\u009b2J\\u007f\\u202e/);
    }
  });
});
