import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createLogger } from '#src/runtime/log.ts';

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

  it('writes JSON', () => {
    const { log, written } = lines(0, 'json');
    log.warn({ a: 1 }, 'm');
    const { process, msg, a } = JSON.parse(written[0] ?? '') as Record<string, unknown>;
    assert.deepEqual({ process, msg, a }, { process: 'jobs', msg: 'm', a: 1 });
  });

  for (const [verbosity, count] of [
    [0, 1],
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
});
