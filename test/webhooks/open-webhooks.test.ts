import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Agent, request } from 'undici';
import { UsageError } from '#src/runtime/flags.ts';
import { type CertificateOwner, makeCertificates } from '../harness/csi-certificates.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';
import { REVIEW, WATCH_EVENT } from './fixtures.ts';

const EVENT = JSON.stringify(WATCH_EVENT);

describe('the servers for webhooks', () => {
  let redis: TestRedis;
  let folder: string;
  const servers: WebhookServer[] = [];
  before(async () => {
    redis = await startTestRedis();
    folder = await mkdtemp(join(tmpdir(), 'sutler-webhooks-'));
    await makeCertificates(folder);
    await writeFile(join(folder, 'tokens'), 'token-0123456789abcdef');
  });
  after(async () => {
    for (const server of servers) await server.close();
    await redis.close();
    await rm(folder, { recursive: true });
  });

  const start = async (...argv: readonly string[]): Promise<WebhookServer> => {
    const server = await startWebhooks(redis.url, argv);
    servers.push(server);
    return server;
  };
  const file = (name: string): string => join(folder, name);
  const tlsFlags = (server: string): readonly string[] => [
    `--${server}-tls-cert=${file('gateway.crt')}`,
    `--${server}-tls-key=${file('gateway.key')}`,
    `--${server}-tls-client-ca=${file('ca.crt')}`,
  ];
  const connectAs = async (owner?: CertificateOwner) => {
    const read = (name: string) => readFile(file(name), 'utf8');
    const own = owner && { cert: await read(`${owner}.crt`), key: await read(`${owner}.key`) };
    return { ca: await read('ca.crt'), ...own, servername: 'localhost' };
  };
  /** Sends a body with the certificate of a process.
   * @returns the status, or the code of the error */
  const post = async (url: string, body: string, owner?: CertificateOwner): Promise<unknown> => {
    const dispatcher = new Agent({ connect: await connectAs(owner) });
    try {
      const answer = await request(url, { dispatcher, method: 'POST', body });
      await answer.body.dump();
      return answer.statusCode;
    } catch (error) {
      return (error as { readonly code?: string }).code;
    } finally {
      await dispatcher.destroy();
    }
  };

  it('let a client certificate with an allowed name in, others not', async () => {
    const names = '--webhook-allowed-names=DNS:sutler-ingest';
    const { events } = await start(...tlsFlags('webhook'), names);
    assert.equal(await post(events, EVENT, 'ingest'), 202);
    assert.equal(await post(events, EVENT, 'jobs'), 403);
    assert.equal(await post(events, EVENT), 401);
  });

  it('take a token over TLS from a client without a certificate', async () => {
    const tokens = `--webhook-token-file=${file('tokens')}`;
    const [cert = '', key = ''] = tlsFlags('webhook');
    const { send } = await start(cert, key, tokens);
    const headers = { authorization: 'Bearer token-0123456789abcdef' };
    assert.equal((await send(EVENT, headers)).status, 202);
  });

  it('let only clients with a certificate of the authority ask for admission', async () => {
    const { admission } = await start(...tlsFlags('admission'));
    assert.equal(await post(admission, JSON.stringify(REVIEW), 'jobs'), 200);
    assert.notEqual(await post(admission, JSON.stringify(REVIEW)), 200);
  });

  for (const [what, error, argv] of [
    [
      'events beyond loopback without authentication',
      /--webhook-address :0: .*--webhook-token-file/,
      () => ['--webhook-address=:0'],
    ],
    [
      'plaintext admission beyond loopback',
      /--admission-address .*--admission-tls-cert/,
      () => ['--admission-address=0.0.0.0:0'],
    ],
    [
      'a certificate without its key',
      /--webhook-tls-key is missing/,
      () => [`--webhook-tls-cert=${file('gateway.crt')}`],
    ],
    [
      'an authority without TLS',
      /needs --webhook-tls-cert/,
      () => [`--webhook-tls-client-ca=${file('ca.crt')}`, '--webhook-allowed-names=a'],
    ],
    ['an authority without names', /--webhook-allowed-names is missing/, () => tlsFlags('webhook')],
    [
      'names without an authority',
      /--webhook-tls-client-ca is missing/,
      () => ['--webhook-allowed-names=a'],
    ],
    [
      'a pattern of names',
      /--webhook-allowed-names: "\*\.x" is a pattern/,
      () => [...tlsFlags('webhook'), '--webhook-allowed-names=*.x'],
    ],
    [
      'a file that is missing',
      /--webhook-signing-key-file .*ENOENT/,
      () => [`--webhook-signing-key-file=${file('none')}`],
    ],
  ] as const)
    it(`refuse ${what}`, () =>
      assert.rejects(
        startWebhooks(redis.url, argv()),
        (thrown) => thrown instanceof UsageError && error.test(thrown.message),
      ));
});
