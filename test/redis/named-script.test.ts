import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { defineNamedScript } from '#src/redis/named-script.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

describe('defineNamedScript', () => {
  let server: TestRedis;
  before(async () => {
    server = await startTestRedis();
  });
  after(() => server.close());

  it('gives keys and arguments to Lua by name, and the answer back by name', async () => {
    const script = defineNamedScript({
      keys: ['source', 'target'],
      args: { added: 'number', isOther: 'flag' },
      answers: { copied: { text: 'text', sum: 'number', isOther: 'flag', all: 'list' } },
      lua: `
local text = redis.call('GET', source)
redis.call('SET', target, text)
return {'copied', 'text', text, 'sum', added + 1, 'isOther', isOther and '1' or '0',
  'all', {source, target}}
`,
    });
    await server.redis.set('a', 'value');
    const keys = { source: 'a', target: 'b' };
    assert.deepEqual(await script.run(server.redis, keys, { added: 4, isOther: true }), {
      kind: 'copied',
      text: 'value',
      sum: 5,
      isOther: true,
      all: ['a', 'b'],
    });
    assert.equal(await server.redis.get('b'), 'value');
  });

  it('rejects an answer that it does not declare', async () => {
    const answers = { ok: { count: 'number' } } as const;
    const script = defineNamedScript({ keys: [], args: {}, answers, lua: `return {'ok'}` });
    await assert.rejects(script.run(server.redis, {}, {}), /does not declare/);
  });
});
