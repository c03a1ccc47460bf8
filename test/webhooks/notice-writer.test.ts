import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ChangeNotice, NoticesUnavailable, NoticeWriter } from '#src/webhooks/notices.ts';

function notice(name: string): ChangeNotice {
  return { resource: 'persistentvolumes', namespace: '', name, isEarly: false };
}

/** A writer whose commands end when the test says so. */
function openWriter() {
  const commands: { readonly notices: readonly string[]; readonly end: (error?: Error) => void }[] =
    [];
  let trouble: string | undefined;
  const writer = new NoticeWriter({
    append: (notices) =>
      new Promise((resolve, reject) => {
        const end = (error?: Error): void => (error === undefined ? resolve() : reject(error));
        commands.push({ notices: notices.map(({ name }) => name), end });
      }),
    trouble: () => trouble,
  });
  return { writer, commands, setTrouble: (text: string) => (trouble = text) };
}

describe('a writer of notices', () => {
  it('says which notices are not stored', async () => {
    const { writer, commands } = openWriter();
    const first = writer.write([notice('a')]);
    const second = writer.write([notice('b')]);
    commands[0]?.end(new Error('LOADING'));
    await assert.rejects(first, NoticesUnavailable);
    commands[1]?.end();
    await second;
  });

  it('refuses at once while Redis can not be reached', async () => {
    const { writer, commands, setTrouble } = openWriter();
    setTrouble('Redis is away');
    await assert.rejects(writer.write([notice('a')]), /Redis is away/);
    assert.equal(commands.length, 0);
  });

  it('gives a notice up that Redis does not answer', async () => {
    const { writer } = openWriter();
    const startedMs = performance.now();
    await assert.rejects(writer.write([notice('a')]), /did not answer within 2 s/);
    assert.ok(performance.now() - startedMs < 4_000);
  });

  it('refuses more than ten thousand notices that wait', async () => {
    const { writer, commands } = openWriter();
    const many = Array.from({ length: 10 }, (_, part) =>
      writer.write(Array.from({ length: 1_000 }, (_, n) => notice(`${part}-${n}`))),
    );
    await assert.rejects(writer.write([notice('more')]), /too many notices/);
    for (let n = 0; n < 10; n += 1) {
      commands[n]?.end();
      await new Promise((wake) => setImmediate(wake));
    }
    await Promise.all(many);
  });
});
