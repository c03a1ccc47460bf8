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
  const refuse = async (error: RegExp, ...argv: readonly string[]): Promise<void> => {
    await assert.rejects(
      startWebhooks(redis.url, argv),
      (thrown) => thrown instanceof UsageError && error.test(thrown.message),
    );
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

  it('let everybody ask for admission without an authority', async () => {
    const [cert = '', key = ''] = tlsFlags('admission');
    const { admission } = await start(cert, key);
    assert.equal(await post(admission, JSON.stringify(REVIEW)), 200);
  });

  it('answer 404 to paths that differ in letters or in a slash at the end', async () => {
    const { events, admission } = await start();
    for (const [url, body] of [
      [events, EVENT],
      [admission, JSON.stringify(REVIEW)],
    ] as const) {
      const { origin, pathname } = new URL(url);
      assert.ok((await post(url, body)) === 202 || (await post(url, body)) === 200);
      for (const path of [`${pathname}/`, `/${pathname[1]?.toUpperCase()}${pathname.slice(2)}`])
        assert.equal(await post(origin + path, body), 404, path);
    }
  });

  it('are none without flags', async () => {
    const { events, admission } = await start('--webhook-address=', '--admission-address=');
    assert.equal(events + admission, '');
  });

  it('refuse to take events beyond loopback without authentication', () =>
    refuse(/--webhook-address :0: .*--webhook-token-file/, '--webhook-address=:0'));

  it('take events beyond loopback with it', async () => {
    await start('--webhook-address=0.0.0.0:0', `--webhook-token-file=${file('tokens')}`);
  });

  it('refuse plaintext admission beyond loopback', () =>
    refuse(/--admission-address .*--admission-tls-cert/, '--admission-address=0.0.0.0:0'));

  it('refuse half of a certificate', async () => {
    await refuse(/--webhook-tls-key is missing/, `--webhook-tls-cert=${file('gateway.crt')}`);
    await refuse(/--admission-tls-cert is missing/, `--admission-tls-key=${file('ca.crt')}`);
  });

  it('refuse an authority without TLS or without names', async () => {
    const ca = `--webhook-tls-client-ca=${file('ca.crt')}`;
    await refuse(/needs --webhook-tls-cert/, ca, '--webhook-allowed-names=a');
    await refuse(/--webhook-allowed-names is missing/, ...tlsFlags('webhook'));
    await refuse(/--webhook-tls-client-ca is missing/, '--webhook-allowed-names=a');
  });

  it('refuse a pattern of names', () =>
    refuse(
      /--webhook-allowed-names: "\*\.x" is a pattern/,
      ...tlsFlags('webhook'),
      '--webhook-allowed-names=*.x',
    ));

  it('refuse files that can not be used', async () => {
    await writeFile(file('short'), 'short');
    await refuse(/--webhook-token-file .*16 characters/, `--webhook-token-file=${file('short')}`);
    await refuse(
      /--webhook-signing-key-file .*ENOENT/,
      `--webhook-signing-key-file=${file('none')}`,
    );
  });
});
